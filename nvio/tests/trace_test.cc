// A trace: what was written is read again, golden bytes, torn ends, hostile bytes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "../record/mount_source.h"
#include "../record/trace_reader.h"
#include "../record/trace_writer.h"
#include "../system/crc32c.h"
#include "mounted.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kProcess = 4711;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Trace parse(const std::string& bytes) { return read_trace(std::as_bytes(std::span(bytes))); }

class TraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/nvio-trace-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/one.trace";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The trace of testdata: one file, opened by two ranks, one piece of 4 KiB that the MPI wrote for
  // two of 512 bytes.
  void write_small() const {
    TraceWriter writer(path_, 1'000'000, kProcess, "node7");
    TraceFile file{};
    file.device = 0x801;
    file.inode = 99;
    file.size = 1 << 20;
    writer.add_file(file, "/scratch/data", "ext4 /dev/sdb1");
    writer.add({TraceKind::open, 0, 0, 2, 0, kTraceReads | kTraceWrites, 0, 500});
    writer.add({TraceKind::write, 0, 0, 0, 8192, 4096, 700, 90});
    writer.add_view(*View::of({{{0, 512}}, 2048}, 8192), 0, true);
    writer.add({TraceKind::write_view, 0, 0, 0, 0, 1024, 690, 110});
    writer.add({TraceKind::close, 0, 0, 2, 0, kTraceReads | kTraceWrites, 900, 50});
    writer.add({TraceKind::end, 0, 0, 0, 0, 0, 1000, 0});
  }

  std::string folder_;
  std::string path_;
};

TEST_F(TraceTest, GoldenBytesAreWrittenAndRead) {
  write_small();
  const std::string golden = content(std::string(NVIO_TESTDATA) + "/one_write.trace");
  EXPECT_EQ(content(path_), golden);
  const Trace trace = parse(golden);
  ASSERT_EQ(trace.problem, "");
  EXPECT_TRUE(trace.complete);
  EXPECT_STREQ(trace.header.host, "node7");
  EXPECT_EQ(trace.header.process, kProcess);
  ASSERT_EQ(trace.files.size(), 1U);
  EXPECT_EQ(trace.files.at(0).path, "/scratch/data");
  EXPECT_EQ(trace.files.at(0).source, "ext4 /dev/sdb1");
  ASSERT_EQ(trace.views.size(), 1U);
  ASSERT_EQ(trace.calls.size(), 5U);
  EXPECT_EQ(trace.calls[1].kind, TraceKind::write_view);
  EXPECT_EQ(trace.calls[2].kind, TraceKind::write);
  EXPECT_EQ(trace.calls[2].offset, 8192U);
  EXPECT_EQ(trace.calls[2].duration, 90U);
}

TEST_F(TraceTest, OneThatCannotBeWrittenAnyFurtherIsToldOnce) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  constexpr rlim_t kLimit = 64 << 10;
  const rlimit small{kLimit, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  testing::internal::CaptureStderr();
  {
    TraceWriter writer(path_, 0, kProcess, "host");
    writer.add_file(TraceFile{}, "/f", "");
    constexpr int kCalls = 10000;
    for (int i = 0; i < kCalls; ++i) writer.add({TraceKind::read, 0, 0, 0, 0, 1, 0, 1});
  }
  const std::string told = testing::internal::GetCapturedStderr();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(told.find("cannot write the trace " + path_), std::string::npos) << told;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

// Files of an overlay, as those of btrfs, have another device's number than their mount.
TEST_F(TraceTest, TheMountOfAFileIsKnownWhateverItsDevicesNumber) {
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts";
  const Mounted lower("tmpfs", folder_ + "/lower");
  const Mounted upper("tmpfs", folder_ + "/upper");
  std::ofstream(folder_ + "/lower/file") << "x";
  fs::create_directory(folder_ + "/upper/top");
  fs::create_directory(folder_ + "/upper/work");
  const Mounted merged("overlay", folder_ + "/merged",
                       "lowerdir=" + folder_ + "/lower,upperdir=" + folder_ +
                           "/upper/top,workdir=" + folder_ + "/upper/work");
  const int fd = open((folder_ + "/merged/file").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(mount_source(fd), "overlay overlay");
  close(fd);
}

TEST_F(TraceTest, RandomCallsComeBackInTheOrderOfTheirStarts) {
  std::mt19937_64 random(3);
  std::vector<TraceCall> written;
  {
    TraceWriter writer(path_, 0, kProcess, "host");
    writer.add_file(TraceFile{}, "/f", "");
    constexpr int kCalls = 10000;  // several blocks
    for (int i = 0; i < kCalls; ++i) {
      const auto kind = random() % 2 == 0 ? TraceKind::read : TraceKind::write;
      written.push_back({kind, 0, 0, 0, random() % kMostOffset, random() % kMostTransfer,
                         random() % 5000, random() % 100});
      writer.add(written.back());
    }
  }
  const Trace trace = parse(content(path_));
  ASSERT_EQ(trace.problem, "");
  EXPECT_FALSE(trace.complete);  // no end was written
  std::stable_sort(written.begin(), written.end(), [](const TraceCall& a, const TraceCall& b) {
    return a.start != b.start ? a.start < b.start : a.duration > b.duration;
  });
  ASSERT_EQ(trace.calls.size(), written.size());
  EXPECT_EQ(std::memcmp(trace.calls.data(), written.data(), written.size() * sizeof(TraceCall)), 0);
}

TEST_F(TraceTest, ViewsComeBackWithTheirTiles) {
  const View pairs = *View::of({{{0, 4}, {16, 8}}, 32}, 100);
  const View bytes = *View::of({{{0, 1}}, 1}, 0);
  {
    TraceWriter writer(path_, 0, kProcess, "host");
    writer.add_file(TraceFile{}, "/f", "");
    writer.add_view(pairs, 0, true);
    writer.add_view(bytes, 1, true);
    writer.add_view(pairs.from(4096), 0, false);
    writer.add({TraceKind::read_view, 0, 0, 2, 13, 24, 0, 5});
  }
  const Trace trace = parse(content(path_));
  ASSERT_EQ(trace.problem, "");
  ASSERT_EQ(trace.views.size(), 3U);
  EXPECT_TRUE(trace.views[1].is_one_run());
  EXPECT_TRUE(trace.views[2].has_tiles_of(pairs));
  EXPECT_EQ(trace.views[0].displacement(), 100U);
  ASSERT_EQ(trace.calls.size(), 1U);
  View::Walk walk(trace.views[trace.calls[0].ranks], trace.calls[0].offset, trace.calls[0].length);
  std::vector<FileRun> runs;
  EXPECT_EQ(walk.next(runs, 99), 24U);
  EXPECT_EQ(runs,
            (std::vector<FileRun>{
                {4096 + 33, 3}, {4096 + 48, 8}, {4096 + 64, 4}, {4096 + 80, 8}, {4096 + 96, 1}}));
}

TEST_F(TraceTest, CallsOnViewsThatCannotBeAreRefused) {
  const View view = *View::of({{{0, 4}}, 32}, 0);
  const auto of = [&](const TraceCall& call, std::uint32_t same, bool has_runs) {
    fs::remove(path_);
    {
      TraceWriter writer(path_, 0, kProcess, "host");
      writer.add_file(TraceFile{}, "/f", "");
      writer.add_view(view, same, has_runs);
      writer.add(call);
    }
    return parse(content(path_)).problem;
  };
  const TraceCall good{TraceKind::write_view, 0, 0, 0, 0, 4, 0, 1};
  EXPECT_EQ(of(good, 0, true), "");
  EXPECT_NE(of(good, 1, true), "") << "its tiles are those of a view to come";
  EXPECT_NE(of(good, 0, false), "") << "it has no tiles";
  TraceCall bad = good;
  bad.ranks = 1;
  EXPECT_NE(of(bad, 0, true), "") << "of a view to come";
  bad = good;
  bad.length = 0;
  EXPECT_NE(of(bad, 0, true), "");
  bad.length = kMostTransfer + 1;
  EXPECT_NE(of(bad, 0, true), "");
  bad = good;
  bad.offset = kMostOffset / 4;
  EXPECT_NE(of(bad, 0, true), "") << "beyond any file";
}

TEST_F(TraceTest, ATraceOfTheVersionBeforeIsRead) {
  const Trace trace = parse(content(std::string(NVIO_TESTDATA) + "/one_write_version_1.trace"));
  EXPECT_EQ(trace.problem, "");
  EXPECT_EQ(trace.calls.size(), 4U);
}

TEST_F(TraceTest, EveryTornEndIsNotedAndWhatIsBeforeItIsKept) {
  write_small();
  const std::string whole = content(path_);
  std::size_t kept = 0;
  for (std::size_t length = sizeof(TraceHeader); length < whole.size(); ++length) {
    const Trace trace = parse(whole.substr(0, length));
    EXPECT_EQ(trace.problem, "") << length;
    EXPECT_FALSE(trace.complete) << length;
    EXPECT_GE(trace.calls.size(), kept) << length;
    kept = trace.calls.size();
  }
  EXPECT_EQ(kept, 2U) << "all but the last block's";
}

TEST_F(TraceTest, NoFlippedBitIsTakenForATrace) {
  write_small();
  const std::string whole = content(path_);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const Trace trace = parse(bytes);
    EXPECT_TRUE(!trace.problem.empty() || !trace.complete) << "bit " << bit;
  }
}

TEST_F(TraceTest, OtherFilesAreRefusedWithASentence) {
  EXPECT_NE(parse("").problem, "");
  EXPECT_NE(parse(std::string(200, 'x')).problem, "");
  write_small();
  std::string newer = content(path_);
  newer[8] = kTraceVersion + 1;
  EXPECT_NE(parse(newer).problem.find("another version"), std::string::npos);
}

}  // namespace
}  // namespace nvio
