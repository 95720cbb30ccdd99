// Signals as a program has them sent to itself while it does other things.
#pragma once

#include <sys/time.h>

#include <csignal>

namespace nvio {

class Interrupted {
 public:
  explicit Interrupted(void (*handler)(int) = [](int) {}) {
    struct sigaction act {};
    act.sa_handler = handler;
    act.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &act, &before_);
    const itimerval often{{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  Interrupted(const Interrupted&) = delete;
  Interrupted& operator=(const Interrupted&) = delete;
  ~Interrupted() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  struct sigaction before_ {};
};

}  // namespace nvio
