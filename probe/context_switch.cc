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

int64_t SwitchesOfThisProcess() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

void Run(const Options& options) {
  PinTo(AllowedCpus().front());  // the partner inherits it
  std::atomic<bool> stop = false;
  std::thread partner([&] {
    while (!stop.load(std::memory_order_relaxed)) sched_yield();
  });
  // A yield does not always switch, so switches are counted and not yields.
  std::vector<double> batches;
  uint64_t switches = 0;
  for (uint32_t batch = 0; batch <= options.extent.batches; ++batch) {
    const int64_t before = SwitchesOfThisProcess();
    const int64_t start = Now();
    for (uint64_t i = 0; i < options.extent.operations; ++i) sched_yield();
    const int64_t end = Now();
    const int64_t count = SwitchesOfThisProcess() - before;
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
  PrintCost("context-switch", "switch between threads on one processor, a sched_yield included",
            options.extent, batches, {{"switches", switches}});
}

}  // namespace

void AddContextSwitch(Command costs) {
  static Options options;
  const Command command =
      costs.Add("context-switch", "A switch between two running threads, by sched_yield.");
  AddExtent(command, options.extent);
  command.Do([] { Run(options); });
}

}  // namespace tare::probe
