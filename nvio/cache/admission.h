// Whether a transfer should go through the cache or round it: the sampled service time of the
// calls that went to the file, the pattern of a process's calls, and what fetching has cost and
// saved so far.
#pragma once

#include <atomic>
#include <cstdint>

#include "../settings/settings.h"
#include "../store/segment.h"
#include "../system/clock.h"

namespace nvio {

enum class Direction : std::uint8_t { read, write };

constexpr std::uint32_t kFirstSamples = 8;  // timed all, and needed before anything is admitted

// Times one call in 64, or in 8 where calls are slow (and all of the first few): a clock read on
// every fast call costs 15 %. A read beside which a MiB is fetched is not timed: it takes longer
// for the fetch, and would seem to be worth another one.
class SampledTimer {
 public:
  // `calls` is a process's own counter.
  SampledTimer(std::atomic<std::uint32_t>& calls, const FileEntry& entry, Direction direction);
  bool sampling() const { return sampling_; }
  // Adds the time since construction to the file's median, less what `length` bytes take at 1 GB/s:
  // what remains is what a small call would have taken.
  void note(FileEntry& entry, std::uint64_t length) const;

 private:
  Direction direction_;
  bool in_turn_ = false;  // and not as one of the first
  bool sampling_ = false;
  TimePoint start_{};
};

// Whether enough calls were timed to tell.
bool is_timed(const FileEntry& entry, Direction direction);
// Whether the file's calls are so slow that its small transfers belong in the cache.
bool is_slow(const FileEntry& entry, Direction direction);

// A process's account of its fetches: what they took beyond the reads that were missed, against
// the reads of the file that they saved. Threads may lose each other's entries; that costs a
// slightly later decision.
class Ledger {
 public:
  void spend(double seconds) { add(balance_, -seconds); }
  void earn(double seconds) { add(balance_, seconds); }
  // A read that went to the file.
  void pay(double seconds) { add(paid_, seconds); }
  // Whether a fetch may cost so much more. The account may be overdrawn by a few times what was
  // paid for reads of the file, up to a fixed sum, and beyond that by a small share of it: so much,
  // and no more, do wrong guesses cost the program.
  bool affords(double seconds) const;

 private:
  static void add(std::atomic<double>& sum, double seconds) {
    sum.store(sum.load(std::memory_order_relaxed) + seconds, std::memory_order_relaxed);
  }
  std::atomic<double> balance_{0};
  std::atomic<double> paid_{0};
};

// Counts a read of `length` bytes that the cache lacks, in the MiB `group`, and decides whether to
// fetch all of that MiB.
bool fetch_pays(FileEntry& entry, const Ledger& ledger, std::uint64_t group, std::uint64_t length);
// What fetching a MiB took beyond the read that was missed, in seconds.
double note_fetch(FileEntry& entry, double seconds);

constexpr std::uint32_t kCallsOfStream = 4;  // in a row

// What one process's reads of one file look like. Not shared, not locked.
class ReadPattern {
 public:
  // Called for each read.
  void note(std::uint64_t offset, std::uint64_t length);
  // A stream of adjoining reads, which the file system's read-ahead serves better than we could.
  bool is_stream() const { return streak_.load(std::memory_order_relaxed) >= kCallsOfStream; }

 private:
  std::atomic<std::uint64_t> next_{~0ULL};
  std::atomic<std::uint32_t> streak_{0};
};

// What one process's writes of one file look like. Not shared, not locked.
class WritePattern {
 public:
  // Called for each write. Whether it is a long one in a series of even steps (adjoining, or as far
  // apart as the ones before it): what the file system gathers and sends while the program goes
  // on. The cache would send it at the end only, and win nothing for a copy and new pages.
  bool note_is_stream(std::uint64_t offset, std::uint64_t length);

 private:
  std::atomic<std::uint64_t> last_{~0ULL};
  std::atomic<std::uint64_t> step_{0};
  std::atomic<std::uint32_t> streak_{0};
};

}  // namespace nvio
