// Code that has not run since the last switch between processes: what a middleware's path through
// hundreds of functions meets in the middle of a request, and what no hot loop shows.
//
// Two processes on one processor wake each other in turn. In every other batch each of them, once
// woken, calls every cold function once; the difference between such a batch and one
// without the calls is their cost, so that neither wake-up nor clock stands in it.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <new>

#include "cold_functions.h"
#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

// What both processes see.
struct Shared {
  std::atomic<bool> calls = false;
  std::atomic<bool> stop = false;
};

class Pair {
 public:
  Pair() : there_(eventfd(0, 0)), back_(eventfd(0, 0)) {
    if (there_ < 0 || back_ < 0) throw_errno("cannot make an eventfd");
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw_errno("cannot map shared memory");
    shared_ = new (memory) Shared;
    pin_to(allowed_cpus().front());  // the partner inherits it
    partner_ = fork();
    if (partner_ < 0) throw_errno("cannot fork");
    if (partner_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      live();
      _exit(0);
    }
  }
  ~Pair() {
    shared_->stop = true;
    eventfd_write(there_, 1);
    waitpid(partner_, nullptr, 0);
    munmap(shared_, sizeof(Shared));
    close(there_);
    close(back_);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // Mean nanoseconds of a round: both wake each other once, and call everything once if asked to.
  double round(uint64_t rounds, bool calls) {
    shared_->calls = calls;
    const int64_t start = now_ns();
    for (uint64_t i = 0; i < rounds; ++i) {
      eventfd_t value = 0;
      eventfd_write(there_, 1);
      eventfd_read(back_, &value);
      if (calls) value_ = call_cold_functions(value_, data_);
    }
    return static_cast<double>(now_ns() - start) / static_cast<double>(rounds);
  }

 private:
  void live() {
    while (true) {
      eventfd_t value = 0;
      eventfd_read(there_, &value);
      if (shared_->stop) return;
      if (shared_->calls) value_ = call_cold_functions(value_, data_);
      eventfd_write(back_, 1);
    }
  }

  const int there_;
  const int back_;
  Shared* shared_ = nullptr;
  pid_t partner_ = -1;
  uint64_t value_ = 1;
  ColdData data_ = {};
};

void run(const Extent& extent) {
  Pair pair;
  pair.round(extent.operations, true);  // not counted: page faults, translation
  pair.round(extent.operations, false);
  std::vector<double> batches;
  for (uint32_t batch = 0; batch < extent.batches; ++batch) {
    const double with = pair.round(extent.operations, true);
    const double without = pair.round(extent.operations, false);
    batches.push_back((with - without) / (2.0 * kColdFunctions));
  }
  print_cost("cold-code", "function that has not run since the last switch", extent, batches,
             {{"functions", kColdFunctions}});
}

}  // namespace

void add_cold_code(Command costs) {
  static Extent extent{.batches = 20, .operations = 50};
  const Command command = costs.add(
      "cold-code", "Calling functions that have not run since the last switch of processes.");
  add_extent(command, extent);
  command.calls([] { run(extent); });
}

}  // namespace tare::probe
