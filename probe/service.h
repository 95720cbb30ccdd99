// Programs that run until they are told to end: by SIGTERM, SIGINT, or the end of a pipe,
// socket or terminal on stdin (whoever started them is gone).
#pragma once

#include <poll.h>

#include <array>

namespace tare::probe {

class Service {
 public:
  /// Blocks the stop signals in this thread and those it starts later.
  Service();
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Waits until `fd` is readable (true) or the end is asked for (false). -1: only the end.
  bool wait_for(int fd) const;

 private:
  std::array<pollfd, 3> waits_;  // whatever is waited for, the signals, stdin
};

}  // namespace tare::probe
