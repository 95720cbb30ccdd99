// When a MiB is worth fetching: by how long reads and fetches take, and by how long the pieces are.
#include "../cache/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace nvio {
namespace {

constexpr std::uint64_t kGroups = 64;

// A file on which a small read takes half a millisecond, and a MiB eight.
std::unique_ptr<FileEntry> slow_file() {
  auto entry = std::make_unique<FileEntry>();
  entry->size = kGroups * kGroupSize;
  entry->read_seconds = 0.5e-3F;
  entry->fetch_seconds = 8e-3F;
  entry->misses.clear();
  return entry;
}

// How many reads of a MiB miss before it is fetched; `most` when it never is.
int misses_before_fetch(FileEntry& entry, const Ledger& ledger, std::uint64_t length, int most) {
  for (int misses = 1; misses <= most; ++misses) {
    if (fetch_pays(entry, ledger, 7, length)) return misses;
  }
  return most;
}

// With enough on its account for any one fetch.
class Admission : public ::testing::Test {
 protected:
  Admission() { ledger_.earn(1); }
  Ledger ledger_;
};

TEST_F(Admission, FetchesForShortReadsOnceTheyHavePaidAPartOfIt) {
  const auto entry = slow_file();
  const int misses = misses_before_fetch(*entry, ledger_, kPageSize, 256);
  EXPECT_GT(misses, 1);
  EXPECT_LT(misses, 8);
}

TEST_F(Admission, LeavesLongReadsToTheFile) {
  const auto entry = slow_file();
  constexpr std::uint64_t kLength = 64 << 10;
  constexpr int kOnce = kGroupSize / kLength;
  for (std::uint64_t group = 0; group < kGroups; ++group) {
    for (int piece = 0; piece < kOnce; ++piece) {
      EXPECT_FALSE(fetch_pays(*entry, ledger_, group, kLength));
    }
  }
}

TEST_F(Admission, FetchesForLongReadsThatComeAgainAndAgain) {
  const auto entry = slow_file();
  constexpr std::uint64_t kLength = 64 << 10;
  const int misses = misses_before_fetch(*entry, ledger_, kLength, 1000);
  EXPECT_GT(misses, static_cast<int>(kGroupSize / kLength));
  EXPECT_LT(misses, 1000);
}

TEST_F(Admission, FetchesNothingThatTheAccountDoesNotAfford) {
  ledger_.spend(2);
  const auto entry = slow_file();
  EXPECT_EQ(misses_before_fetch(*entry, ledger_, kPageSize, 256), 256);
}

TEST_F(Admission, TimesNoReadBesideAFetch) {
  const auto entry = slow_file();
  std::atomic<std::uint32_t> calls{0};
  for (const std::uint32_t fetching : {1U, 0U}) {
    entry->fetching = fetching;
    const SampledTimer reading(calls, *entry, Direction::read);
    reading.note(*entry, kPageSize);
  }
  EXPECT_EQ(entry->read_samples, 1U);
  // One that began before the fetch, too; writes go their own way.
  const SampledTimer reading(calls, *entry, Direction::read);
  entry->fetching = 1;
  reading.note(*entry, kPageSize);
  EXPECT_EQ(entry->read_samples, 1U);
  const SampledTimer writing(calls, *entry, Direction::write);
  writing.note(*entry, kPageSize);
  EXPECT_EQ(entry->write_samples, 1U);
}

// Ranks that began beside each other would decide otherwise, one by eight samples and one by nine.
TEST_F(Admission, GoesByTheFirstSamplesWhateverWasBegunBesideThem) {
  const auto entry = slow_file();
  std::atomic<std::uint32_t> calls{0};
  const SampledTimer beside(calls, *entry, Direction::write);
  for (std::uint32_t i = 0; i < kFirstSamples; ++i) {
    SampledTimer(calls, *entry, Direction::write).note(*entry, kPageSize);
  }
  const float found = entry->slow_writes;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  beside.note(*entry, kPageSize);
  EXPECT_EQ(entry->slow_writes, found);
}

// Which of eight writes of `length` bytes, each `step` further, is the first of a stream; 0: none.
int first_of_stream(std::uint64_t length, std::uint64_t step) {
  WritePattern pattern;
  for (int call = 1; call <= 8; ++call) {
    if (pattern.note_is_stream(static_cast<std::uint64_t>(call) * step, length)) return call;
  }
  return 0;
}

TEST(WritePattern, LongWritesInEvenStepsAreAStream) {
  constexpr std::uint64_t kLength = 64 << 10;
  EXPECT_GT(first_of_stream(kLength, kLength), 1);
  EXPECT_GT(first_of_stream(kLength, 4 * kLength), 1);
  EXPECT_EQ(first_of_stream(kLength, 0), 0) << "the same piece, written again and again";
  EXPECT_EQ(first_of_stream(kPageSize, kPageSize), 0) << "short ones: each costs a call";
}

TEST(WritePattern, LongWritesHereAndThereAreNone) {
  constexpr std::uint64_t kLength = 64 << 10;
  WritePattern pattern;
  for (const std::uint64_t piece : {7U, 3U, 4U, 9U, 1U, 12U, 11U, 2U, 30U, 21U}) {
    EXPECT_FALSE(pattern.note_is_stream(piece * kLength, kLength));
  }
}

}  // namespace
}  // namespace nvio
