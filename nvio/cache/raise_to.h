#pragma once

#include <atomic>
#include <cstdint>

namespace nvio {

// A maximum that several processes keep: `value` is at least this from now on.
inline void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t at_least) {
  std::uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < at_least && !value.compare_exchange_weak(seen, at_least)) {
  }
}

}  // namespace nvio
