// Switching between two threads that share a processor, without waking either: both always
// want to run and give way by sched_yield.
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

struct Options {
  Extent extent{.batches = 20, .operations = 5'000};
};

int64_t switches_of_this_process() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

void run(const Options& options) {
  pin_to(allowed_cpus().front());  // the partner inherits it
  std::atomic<bool> stop = false;
  std::thread partner([&] {
    while (!stop.load(std::memory_order_relaxed)) sched_yield();
  });
  // A yield does not always switch, so switches are counted and not yields.
  std::vector<double> batches;
  uint64_t switches = 0;
  for (uint32_t batch = 0; batch <= options.extent.batches; ++batch) {
    const int64_t before = switches_of_this_process();
    const int64_t start = now_ns();
    for (uint64_t i = 0; i < options.extent.operations; ++i) sched_yield();
    const int64_t end = now_ns();
    const int64_t count = switches_of_this_process() - before;
    if (batch == 0 || count == 0) continue;
    switches += static_cast<uint64_t>(count);
    batches.push_back(static_cast<double>(end - start) / static_cast<double>(count));
  }
  stop = true;
  partner.join();
  if (batches.empty()) {
    throw std::runtime_error(
        "no context switch happened: this kernel does not switch on sched_yield here");
  }
  print_cost("context-switch", "switch between threads on one processor, a sched_yield included",
             options.extent, batches, {{"switches", switches}});
}

}  // namespace

void add_context_switch(Command costs) {
  static Options options;
  const Command command =
      costs.add("context-switch", "A switch between two running threads, by sched_yield.");
  add_extent(command, options.extent);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
