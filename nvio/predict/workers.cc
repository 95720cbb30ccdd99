#include "workers.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>

namespace nvio {
namespace {

constexpr std::uint32_t kMostWorkers = 1024;

struct Shared {
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> failed{0};
  double seconds[kMostWorkers] = {};  // a call
};

void wait_a_moment() { usleep(100); }

class SharedStopwatch : public Stopwatch {
 public:
  SharedStopwatch(Shared& shared, std::uint32_t workers) : shared_(shared), workers_(workers) {}
  void begin() override {
    shared_.ready.fetch_add(1);
    while (shared_.ready.load() < workers_ && shared_.failed.load() == 0) wait_a_moment();
    start_ = Clock::now();
  }
  void end() override { seconds_ = std::chrono::duration<double>(Clock::now() - start_).count(); }
  double seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Shared& shared_;
  std::uint32_t workers_;
  Clock::time_point start_{};
  double seconds_ = -1;
};

}  // namespace

double seconds_a_call(std::uint32_t workers, const Work& work) {
  if (workers == 0 || workers > kMostWorkers) return -1;
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return -1;
  auto* shared = new (memory) Shared;
  const pid_t parent = getpid();
  std::uint32_t children = 0;
  for (std::uint32_t i = 0; i < workers; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      SharedStopwatch watch(*shared, workers);
      const std::uint64_t calls = getppid() == parent ? work(i, watch) : 0;
      if (calls == 0 || watch.seconds() < 0) shared->failed.fetch_add(1);
      shared->seconds[i] = watch.seconds() / static_cast<double>(std::max<std::uint64_t>(calls, 1));
      _exit(0);
    }
    if (child < 0) {
      shared->failed.fetch_add(1);
      break;
    }
    ++children;
  }
  // Whichever ends first: one that was killed must not be waited for by the others.
  for (std::uint32_t left = children; left > 0;) {
    int status = 0;
    if (waitpid(-1, &status, 0) < 0) {
      if (errno != EINTR) break;
      continue;
    }
    --left;
    if (status != 0) shared->failed.fetch_add(1);
  }
  double total = 0;
  for (std::uint32_t i = 0; i < workers; ++i) total += shared->seconds[i];
  const bool failed = shared->failed.load() != 0;
  munmap(memory, sizeof(Shared));
  return failed ? -1 : total / workers;
}

}  // namespace nvio
