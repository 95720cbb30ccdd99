// The clock by which the cache judges what calls take. A replay of a recorded run (predict/) sets
// its own, so that the same judgements come of calls that only seem to take time.
#pragma once

#include <chrono>

namespace nvio {

using TimePoint = std::chrono::steady_clock::time_point;
using ClockFunction = TimePoint (*)();

inline ClockFunction g_clock = std::chrono::steady_clock::now;

inline TimePoint clock_now() { return g_clock(); }

}  // namespace nvio
