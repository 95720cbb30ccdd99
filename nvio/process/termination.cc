#include "termination.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

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

void* wait_for_termination(void*) {
  std::uint64_t count = 0;
  while (read(g_asked, &count, sizeof count) < 0 && errno == EINTR) {
  }
  g_flush();
  end_as_default();
  return nullptr;
}

}  // namespace

void flush_at_termination(void (*flush)()) {
  struct sigaction now {};
  if (sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  g_flush = flush;
  g_process = getpid();
  g_asked = eventfd(0, EFD_CLOEXEC);
  if (g_asked < 0) return;
  // The program's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread{};
  const int failed = pthread_create(&thread, &attributes, wait_for_termination, nullptr);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) {
    close(g_asked);
    return;
  }
  struct sigaction action {};
  action.sa_handler = on_termination;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace nvio
