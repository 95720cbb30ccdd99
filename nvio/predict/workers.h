// Processes that do the same at the same time, and how long they took.
#pragma once

#include <cstdint>
#include <functional>

namespace nvio {

// The time that one process's calls take. It works between `begin` and `end`.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // Waits until all processes are as far.
  virtual void begin() = 0;
  virtual void end() = 0;
};

// What one process does; returns how many calls it made, 0 when it failed.
using Work = std::function<std::uint64_t(std::uint32_t worker, Stopwatch& watch)>;

// Runs `work` in so many processes. Returns the seconds that a call took each of them, as the mean
// over their calls and over them; negative when one failed. They end with this process.
double seconds_a_call(std::uint32_t workers, const Work& work);

}  // namespace nvio
