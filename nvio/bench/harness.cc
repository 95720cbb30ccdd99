#include "harness.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

namespace nvio::bench {
namespace {

constexpr std::size_t kBehindBarrier = 128;  // bytes
static_assert(sizeof(pthread_barrier_t) <= kBehindBarrier);

unsigned way_of(unsigned round, unsigned step, unsigned ways) {
  return round % 2 == 0 ? step : ways - 1 - step;
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

SharedMemory::SharedMemory(std::size_t bytes, unsigned processes)
    : bytes_(kBehindBarrier + bytes),
      memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  if (memory_ == MAP_FAILED) throw std::runtime_error("cannot map shared memory");
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(static_cast<pthread_barrier_t*>(memory_), &attributes, processes + 1);
  pthread_barrierattr_destroy(&attributes);
}

SharedMemory::~SharedMemory() { munmap(memory_, bytes_); }

void* SharedMemory::data() const { return static_cast<char*>(memory_) + kBehindBarrier; }

std::vector<pid_t> start_processes(unsigned count, const std::function<void(unsigned)>& act) {
  std::signal(SIGUSR1, [](int) { _exit(1); });
  std::fflush(nullptr);  // else each child prints it again
  const pid_t parent = getpid();
  std::vector<pid_t> started;
  for (unsigned i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("cannot start a process");
    if (child != 0) {
      started.push_back(child);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    try {
      act(i);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "nvio-bench: process %u: %s\n", i, error.what());
      kill(parent, SIGUSR1);
      _exit(1);
    }
    // As a program ends: what it holds is given back by its own objects going.
    std::exit(0);
  }
  return started;
}

bool wait_for(const std::vector<pid_t>& processes) {
  bool good = true;
  for (const pid_t process : processes) {
    int status = 0;
    good = waitpid(process, &status, 0) == process && status == 0 && good;
  }
  return good;
}

std::vector<Measured> measure(unsigned clients, unsigned ways, unsigned rounds, unsigned operations,
                              const Client& client, const std::function<void()>& idle) {
  SharedMemory memory(std::size_t{clients} * operations * sizeof(float), clients);
  auto* const all_seconds = static_cast<float*>(memory.data());
  const auto be_client = [&](unsigned number) {
    const std::vector<Round> prepared = client(number);
    std::vector<float> seconds(operations);
    memory.wait();  // ready
    memory.wait();  // the idle time is over
    for (unsigned round = 0; round < rounds; ++round) {
      for (unsigned step = 0; step < ways; ++step) {
        memory.wait();
        prepared[way_of(round, step, ways)](seconds);
        std::copy(seconds.begin(), seconds.end(), all_seconds + std::size_t{number} * operations);
        memory.wait();
        memory.wait();  // the parent has read it
      }
    }
  };
  const std::vector<pid_t> children = start_processes(clients, be_client);
  std::vector<Measured> all;
  memory.wait();
  if (idle) idle();
  memory.wait();
  for (unsigned round = 0; round < rounds; ++round) {
    for (unsigned step = 0; step < ways; ++step) {
      memory.wait();
      memory.wait();
      all.push_back({way_of(round, step, ways),
                     {all_seconds, all_seconds + std::size_t{clients} * operations}});
      memory.wait();
    }
  }
  if (!wait_for(children)) throw std::runtime_error("a client failed");
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
  // In logarithms: of more than 1074 values 2^-n is no number.
  double tail = -static_cast<double>(n) * std::log(2);
  double outside = std::exp(tail);
  std::size_t rank = 0;
  for (std::size_t i = 1; 2 * i < n; ++i) {
    tail += std::log(static_cast<double>(n - i + 1) / static_cast<double>(i));
    outside += std::exp(tail);
    if (outside > 0.025) break;
    rank = i;
  }
  const double middle = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {values[rank], middle, values[n - 1 - rank]};
}

}  // namespace nvio::bench
