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
auto smallest_step(Read&& read) {
  auto last = read();
  auto step = std::numeric_limits<decltype(last)>::max();
  for (int i = 0; i < 100'000; ++i) {
    const auto now = read();
    if (now > last) step = std::min(step, now - last);
    last = now;
  }
  return step;
}

void run(const Extent& extent) {
  Members details = {{"resolution_ns", smallest_step(now_ns)}};
#if defined(__x86_64__)
  const auto read_counter = [] { return static_cast<uint64_t>(__rdtsc()); };
  const int64_t start_ns = now_ns();
  const uint64_t start_ticks = read_counter();
  details.emplace_back("tsc_batches", measure_batches(extent, [&] {
                         uint64_t ticks = read_counter();
                         keep(ticks);
                       }));
  const uint64_t ticks = read_counter() - start_ticks;
  details.emplace_back("tsc_ticks_per_ns",
                       static_cast<double>(ticks) / static_cast<double>(now_ns() - start_ns));
  details.emplace_back("tsc_resolution_ticks", smallest_step(read_counter));
#endif
  const std::vector<double> batches = measure_batches(extent, [] {
    int64_t now = now_ns();
    keep(now);
  });
  print_cost("clock", "reading of CLOCK_MONOTONIC", extent, batches, details);
}

}  // namespace

void add_clock(Command costs) {
  static Extent extent{.batches = 20, .operations = 10'000};
  const Command command = costs.add(
      "clock", "Reading CLOCK_MONOTONIC (and rdtsc as tsc_batches), and their resolutions.");
  add_extent(command, extent);
  command.calls([] { run(extent); });
}

}  // namespace tare::probe
