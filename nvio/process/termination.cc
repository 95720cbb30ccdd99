#include "termination.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <thread>

#include "../system/all_signals_blocked.h"

namespace nvio {
namespace {

void (*g_flush)() = nullptr;
int g_asked = -1;  // an eventfd
pid_t g_process = 0;

void end_as_default() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGTERM, &action, nullptr);
  kill(getpid(), SIGTERM);
}

// Only calls that POSIX allows in a signal handler. Whoever was interrupted may hold a lock of the
// cache, so the work is another thread's.
void on_termination(int) {
  const int saved = errno;
  const std::uint64_t one = 1;
  // A child that was forked and never executed anything has no thread to wake: it just ends.
  if (getpid() != g_process || write(g_asked, &one, sizeof one) != sizeof one) end_as_default();
  errno = saved;
}

void wait_for_termination() {
  std::uint64_t count = 0;
  while (read(g_asked, &count, sizeof count) < 0 && errno == EINTR) {
  }
  g_flush();
  end_as_default();
}

}  // namespace

void flush_at_termination(void (*flush)()) {
  struct sigaction now {};
  if (sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  g_flush = flush;
  g_process = getpid();
  g_asked = eventfd(0, EFD_CLOEXEC);
  if (g_asked < 0) return;
  try {
    const AllSignalsBlocked blocked;
    std::thread(wait_for_termination).detach();
  } catch (const std::system_error&) {
    close(g_asked);
    return;
  }
  struct sigaction action {};
  action.sa_handler = on_termination;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace nvio
