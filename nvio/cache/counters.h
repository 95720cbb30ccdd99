// What one process's cache did; printed at the end with NVIO_STATS=1.
#pragma once

#include <atomic>
#include <cstdint>

namespace nvio {

// Calls, bytes where the name says so. Each counts since the process attached.
struct Counters {
  std::atomic<std::uint64_t> reads{0}, read_hits{0}, reads_direct{0};
  std::atomic<std::uint64_t> writes{0}, writes_cached{0}, writes_direct{0};
  std::atomic<std::uint64_t> remote_reads{0}, remote_writes{0}, windows{0};
  std::atomic<std::uint64_t> fetches{0}, fetched_bytes{0};
  std::atomic<std::uint64_t> write_backs{0}, written_back_bytes{0};
  std::atomic<std::uint64_t> evicted_blocks{0}, syncs{0}, logged_bytes{0}, checkpoints{0};
  std::atomic<std::uint64_t> simulated_ns{0};
};

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace nvio
