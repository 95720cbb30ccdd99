// Whether a transfer should go through the cache or round it: the sampled service time of the
// calls that went to the file, and the pattern of a process's calls.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "../settings/settings.h"
#include "segment.h"

namespace nvio {

enum class Direction : std::uint8_t { read, write };

// Times one call in 64 (all of the first few): a clock read on every call costs 15 %.
class SampledTimer {
 public:
  // `calls` is a process's own counter; `samples` what the file has so far.
  SampledTimer(std::uint32_t& calls, const std::atomic<std::uint32_t>& samples);
  bool sampling() const { return sampling_; }
  // Adds the time since construction to the file's mean, less what `length` bytes take at 1 GB/s:
  // what remains is what a small call would have taken.
  void note(FileEntry& entry, Direction direction, std::uint64_t length) const;

 private:
  bool sampling_;
  std::chrono::steady_clock::time_point start_{};
};

// Whether the file's calls are so slow that its small transfers belong in the cache.
bool is_slow(const FileEntry& entry, Direction direction);

// What one process's reads of one file look like. Not shared, not locked: a lost update costs a
// slightly later admission.
class ReadPattern {
 public:
  enum class Advice : std::uint8_t {
    direct,  // nothing pays yet
    block,   // fetch the 64 KiB around it
    group,   // fetch the whole MiB: it was missed again and again
  };
  // Called for each read.
  void note(std::uint64_t offset, std::uint64_t length);
  // Called for a read that the cache could not serve.
  Advice advise(std::uint64_t offset, std::uint64_t length);

 private:
  static constexpr std::uint32_t kSequential = 4;  // calls in a row
  std::uint64_t next_ = ~0ULL;
  std::uint32_t streak_ = 0;
  struct Missed {
    std::uint64_t group = ~0ULL;
    std::uint32_t times = 0;
  };
  std::array<Missed, 1024> missed_{};
};

}  // namespace nvio
