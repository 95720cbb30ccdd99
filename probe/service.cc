#include "service.h"

#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "measurement.h"

namespace tare::probe {
namespace {

// /dev/null and files are at their end from the start, which says nothing.
bool stdin_means_something() {
  struct stat status = {};
  if (fstat(STDIN_FILENO, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || isatty(STDIN_FILENO) == 1;
}

}  // namespace

Service::Service() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int stop = signalfd(-1, &signals, SFD_CLOEXEC);
  if (stop < 0) throw_errno("cannot watch for signals");
  waits_ = {{{.fd = -1, .events = POLLIN, .revents = 0},
             {.fd = stop, .events = POLLIN, .revents = 0},
             {.fd = stdin_means_something() ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}}};
}

Service::~Service() { close(waits_[1].fd); }

bool Service::wait_for(int fd) const {
  std::array<pollfd, 3> waits = waits_;
  waits[0].fd = fd;
  while (true) {
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[1].revents != 0) return false;
    if (waits[2].revents != 0) {
      char ignored[256];
      if (read(STDIN_FILENO, ignored, sizeof ignored) <= 0) return false;
    }
    if (waits[0].revents != 0) return true;
  }
}

}  // namespace tare::probe
