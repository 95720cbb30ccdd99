// Where on this machine a process runs.
#pragma once

#include <sched.h>

namespace nvio::bench {

// The client's process runs on the first processor that this one may use and what it starts on the
// second, if there are two: manager and echo server stand in the same place.
class Placed {
 public:
  explicit Placed(int place);  // 0 or 1
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  ~Placed() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

}  // namespace nvio::bench
