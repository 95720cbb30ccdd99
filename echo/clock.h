#pragma once

#include <time.h>

#include <cstdint>

namespace tare::echo {

/// CLOCK_MONOTONIC in nanoseconds: the one clock of every stamp.
inline int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Server work: keeps the processor busy until `duration_ns` has passed on the monotonic clock.
/// It is time on the wall, not a number of instructions: a server that is preempted while it
/// works does less of it.
inline void spin_for(int64_t duration_ns) {
  if (duration_ns <= 0) return;
  const int64_t until = now_ns() + duration_ns;
  while (now_ns() < until) {
  }
}

}  // namespace tare::echo
