// Reading the clock: CLOCK_MONOTONIC, and the processor's time-stamp counter beside it.
#include "costs.h"
#include "measurement.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <algorithm>
#include <limits>

namespace tare::probe {
namespace {

// The smallest step that two readings in a row have shown.
template <typename Read>
auto SmallestStep(Read&& read) {
  auto last = read();
  auto step = std::numeric_limits<decltype(last)>::max();
  for (int i = 0; i < 100'000; ++i) {
    const auto now = read();
    if (now > last) step = std::min(step, now - last);
    last = now;
  }
  return step;
}

void Run(const Extent& extent) {
  Members details = {{"resolution_ns", SmallestStep(Now)}};
#if defined(__x86_64__)
  const auto read_counter = [] { return static_cast<uint64_t>(__rdtsc()); };
  const int64_t start_ns = Now();
  const uint64_t start_ticks = read_counter();
  details.emplace_back("tsc_batches", MeasureBatches(extent, [&] {
                         uint64_t ticks = read_counter();
                         Keep(ticks);
                       }));
  const uint64_t ticks = read_counter() - start_ticks;
  details.emplace_back("tsc_ticks_per_ns",
                       static_cast<double>(ticks) / static_cast<double>(Now() - start_ns));
  details.emplace_back("tsc_resolution_ticks", SmallestStep(read_counter));
#endif
  const std::vector<double> batches = MeasureBatches(extent, [] {
    int64_t now = Now();
    Keep(now);
  });
  PrintCost("clock", "reading of CLOCK_MONOTONIC", extent, batches, details);
}

}  // namespace

void AddClock(Command costs) {
  static Extent extent{.batches = 20, .operations = 10'000};
  const Command command = costs.Add(
      "clock", "Reading CLOCK_MONOTONIC (and rdtsc as tsc_batches), and their resolutions.");
  AddExtent(command, extent);
  command.Do([] { Run(extent); });
}

}  // namespace tare::probe
