#include "harness.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace nvio::bench {
namespace {

struct Shared {
  pthread_barrier_t barrier;
  float seconds[];  // client * operations
};

class SharedMemory {
 public:
  SharedMemory(unsigned clients, unsigned operations)
      : bytes_(sizeof(Shared) + std::size_t{clients} * operations * sizeof(float)),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::runtime_error("cannot map shared memory");
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&get().barrier, &attributes, clients + 1);
    pthread_barrierattr_destroy(&attributes);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, bytes_); }
  Shared& get() { return *static_cast<Shared*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

unsigned way_of(unsigned round, unsigned step, unsigned ways) {
  return round % 2 == 0 ? step : ways - 1 - step;
}

[[noreturn]] void be_client(Shared& shared, unsigned number, unsigned ways, unsigned rounds,
                            unsigned operations, const Client& client) {
  try {
    const std::vector<Round> prepared = client(number);
    std::vector<float> seconds(operations);
    pthread_barrier_wait(&shared.barrier);  // ready
    pthread_barrier_wait(&shared.barrier);  // the idle time is over
    for (unsigned round = 0; round < rounds; ++round) {
      for (unsigned step = 0; step < ways; ++step) {
        pthread_barrier_wait(&shared.barrier);
        prepared[way_of(round, step, ways)](seconds);
        std::copy(seconds.begin(), seconds.end(),
                  shared.seconds + std::size_t{number} * operations);
        pthread_barrier_wait(&shared.barrier);
        pthread_barrier_wait(&shared.barrier);  // the parent has read it
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nvio-bench: client %u: %s\n", number, error.what());
    // The others wait at a barrier that will not be reached: the parent sees to them.
    kill(getppid(), SIGUSR1);
    _exit(1);
  }
  // As a program ends: what it holds is given back by the client's own objects going.
  std::exit(0);
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<Measured> measure(unsigned clients, unsigned ways, unsigned rounds, unsigned operations,
                              const Client& client, const std::function<void()>& idle) {
  SharedMemory memory(clients, operations);
  Shared& shared = memory.get();
  static std::vector<pid_t> children;
  children.clear();
  // A client that fails would leave all others waiting.
  std::signal(SIGUSR1, [](int) {
    for (const pid_t child : children) kill(child, SIGKILL);
    _exit(1);
  });
  std::fflush(nullptr);  // else each child prints it again
  for (unsigned i = 0; i < clients; ++i) {
    const pid_t child = fork();
    if (child == 0) be_client(shared, i, ways, rounds, operations, client);
    if (child < 0) throw std::runtime_error("cannot start a process");
    children.push_back(child);
  }
  std::vector<Measured> all;
  pthread_barrier_wait(&shared.barrier);
  if (idle) idle();
  pthread_barrier_wait(&shared.barrier);
  for (unsigned round = 0; round < rounds; ++round) {
    for (unsigned step = 0; step < ways; ++step) {
      pthread_barrier_wait(&shared.barrier);
      pthread_barrier_wait(&shared.barrier);
      all.push_back({way_of(round, step, ways),
                     {shared.seconds, shared.seconds + std::size_t{clients} * operations}});
      pthread_barrier_wait(&shared.barrier);
    }
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    failed = waitpid(child, &status, 0) != child || status != 0 || failed;
  }
  if (failed) throw std::runtime_error("a client failed");
  return all;
}

double quantile(std::vector<float>& values, double share) {
  const auto at = std::min(values.size() - 1,
                           static_cast<std::size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

Interval median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  // The widest symmetric pair of order statistics that leaves out at most 2.5 % on each side.
  double tail = 1;
  for (std::size_t i = 0; i < n; ++i) tail /= 2;
  double outside = tail;
  std::size_t rank = 0;
  for (std::size_t i = 1; 2 * i < n; ++i) {
    tail = tail * static_cast<double>(n - i + 1) / static_cast<double>(i);
    if (outside + tail > 0.025) break;
    outside += tail;
    rank = i;
  }
  const double middle = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {values[rank], middle, values[n - 1 - rank]};
}

}  // namespace nvio::bench
