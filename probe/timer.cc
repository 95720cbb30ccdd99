// How late a sleep until an absolute time ends.
#include <sys/prctl.h>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

struct Options {
  Extent extent{.batches = 20, .operations = 100};
  int64_t interval_ns = 200'000;
};

void run(const Options& options) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // else the kernel may add 50 us of its choice
  std::vector<double> batches;
  for (uint32_t batch = 0; batch <= options.extent.batches; ++batch) {
    int64_t lateness = 0;
    for (uint64_t i = 0; i < options.extent.operations; ++i) {
      const int64_t due = now_ns() + options.interval_ns;
      const timespec until = {.tv_sec = due / 1'000'000'000, .tv_nsec = due % 1'000'000'000};
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
      }
      lateness += now_ns() - due;
    }
    if (batch > 0) {
      batches.push_back(static_cast<double>(lateness) /
                        static_cast<double>(options.extent.operations));
    }
  }
  print_cost("timer", "lateness of a sleep until an absolute time", options.extent, batches,
             {{"interval_ns", options.interval_ns}, {"timer_slack_ns", 1}});
}

}  // namespace

void add_timer(Command costs) {
  static Options options;
  const Command command = costs.add("timer", "How late clock_nanosleep(TIMER_ABSTIME) ends.");
  add_extent(command, options.extent);
  command
      .add("--interval-ns", options.interval_ns, "how long to sleep each time",
           "N (default 200000)")
      .within(1, INT64_MAX);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
