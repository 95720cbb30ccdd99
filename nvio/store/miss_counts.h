// How often reads of a file were missed in each MiB of it; lies in the segment.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nvio {

// Exact for the MiBs missed most lately: two that share an entry push each other out.
struct MissCounts {
  static constexpr std::size_t kEntries = 512;
  // The lower half of a MiB's index and, below it, the count. All ranks add to it; an update that
  // is lost delays a decision by one read.
  std::array<std::atomic<std::uint64_t>, kEntries> entries;
  std::atomic<std::uint64_t> total;

  void clear() {
    for (auto& entry : entries) entry.store(~0ULL, std::memory_order_relaxed);
    total.store(0, std::memory_order_relaxed);
  }

  // Counts a miss; returns how many there were in this MiB, this one included.
  std::uint32_t add(std::uint64_t group) {
    total.fetch_add(1, std::memory_order_relaxed);
    std::atomic<std::uint64_t>& entry = entries[group % kEntries];
    const std::uint64_t seen = entry.load(std::memory_order_relaxed);
    const bool same = seen >> 32 == (group & UINT32_MAX);
    const std::uint64_t count = same ? (seen & UINT32_MAX) + 1 : 1;
    entry.store(group << 32 | count, std::memory_order_relaxed);
    return static_cast<std::uint32_t>(count);
  }
};

}  // namespace nvio
