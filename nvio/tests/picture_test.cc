// The map of time and offset: where cells are, how large it gets, and what it does with hostile
// names.
#include <gtest/gtest.h>

#include "../picture/axis.h"
#include "../picture/heat_map.h"

namespace nvio {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kMiB = 1 << 20;

TraceCall a_call(TraceKind kind, std::uint16_t file, std::uint64_t offset, std::uint64_t length,
                 std::uint64_t start, std::uint64_t lasted) {
  return {kind, 0, file, 0, offset, length, start, lasted};
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PictureTest, ReadsAndWritesStandApartWhereTheyWere) {
  JobTrace job;
  job.files = {{"/scratch/data", "ext4", 0}};
  // 76 s and 36 MiB: a cell is one of each, 5 pixels wide and high.
  job.ranks = {{a_call(TraceKind::write, 0, 0, kMiB, 0, kSecond),
                a_call(TraceKind::read, 0, 35 * kMiB, kMiB, 75 * kSecond, kSecond)}};
  const std::string drawn = heat_map(job, "app");
  EXPECT_TRUE(holds(drawn, "class=\"r4\" d=\"M439 148h5v5h-5z\"")) << drawn;
  EXPECT_TRUE(holds(drawn, "class=\"w4\" d=\"M516 323h5v5h-5z\"")) << drawn;
  EXPECT_TRUE(holds(drawn, "reads: 1 calls, 1 MiB"));
  EXPECT_TRUE(holds(drawn, "a cell: 1 s of 1 MiB"));
  EXPECT_TRUE(holds(drawn, "offset, MiB"));
}

TEST(PictureTest, ALongJobOfManyFilesIsNoLargerThanItsCells) {
  JobTrace job;
  constexpr std::uint16_t kFiles = 50;
  std::vector<TraceCall> calls;
  for (std::uint16_t file = 0; file < kFiles; ++file) {
    job.files.push_back({"/scratch/" + std::to_string(file), "ext4", 0});
    for (std::uint64_t i = 0; i < 4000; ++i) {
      calls.push_back(a_call(i % 2 == 0 ? TraceKind::read : TraceKind::write, file,
                             (i * 7919) % 4096 * kMiB, 1 + i * i * i % kMiB, i * kSecond,
                             kSecond * (i % 200)));
    }
  }
  job.ranks = {calls};
  const std::string drawn = heat_map(job, "app");
  EXPECT_LT(drawn.size(), 800'000U);
  EXPECT_TRUE(holds(drawn, "and 44 more files"));
}

TEST(PictureTest, NamesAreTextAndNotMarkup) {
  JobTrace job;
  job.files = {{"/a\"<script>&\x01\xff", "", 0}};
  job.ranks = {{a_call(TraceKind::write, 0, 0, 1, 0, 0)}};
  const std::string drawn = heat_map(job, "<b>");
  EXPECT_TRUE(holds(drawn, "/a&quot;&lt;script&gt;&amp;??"));
  EXPECT_FALSE(holds(drawn, "<script"));
  EXPECT_FALSE(holds(drawn, "<b>"));
}

TEST(PictureTest, OffsetsAsLargeAsATraceMayTellOfAreDrawn) {
  JobTrace job;
  job.files = {{"/scratch/data", "ext4", 0}};
  job.ranks = {{a_call(TraceKind::write, 0, kMostOffset, 1, 0, kSecond)}};
  const std::string drawn = heat_map(job, "app");
  EXPECT_TRUE(holds(drawn, "writes: 1 calls, 1 B"));
  EXPECT_FALSE(holds(drawn, "nan"));
  EXPECT_LT(drawn.size(), 20'000U);
}

TEST(PictureTest, AJobThatMovedNothingSaysSo) {
  EXPECT_TRUE(holds(heat_map(JobTrace{}, "app"), "No byte was moved"));
}

TEST(PictureTest, AxesHaveRoundTicks) {
  const Ticks times = time_ticks(0, 0.257);
  EXPECT_EQ(times.unit, "ms");
  ASSERT_EQ(times.at.size(), 6U);
  EXPECT_EQ(times.at[1].second, "50");
  const Ticks bytes = byte_ticks(0, 10.4 * kMiB);
  EXPECT_EQ(bytes.unit, "MiB");
  EXPECT_EQ(bytes.at.back().second, "8");
  EXPECT_EQ(in_bytes(1536), "1.5 KiB");
  EXPECT_EQ(in_seconds(0.0034), "3.4 ms");
}

}  // namespace
}  // namespace nvio
