// Integer and floating-point work: chains of operations of which each needs the one before.
#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

// One step of the xorshift64* generator: three shifts, three exclusive ors, a multiplication.
void RunInteger(const Extent& extent) {
  uint64_t state = 88172645463325252ULL;
  const std::vector<double> batches = MeasureBatches(extent, [&] {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    state *= 2685821657736338717ULL;
    asm volatile("" : "+r"(state));
  });
  PrintCost("integer", "step of xorshift64*", extent, batches);
}

// One step of the logistic map: two multiplications, a subtraction; stays between 0 and 1.
void RunFloatingPoint(const Extent& extent) {
  double state = 0.3;
  const std::vector<double> batches = MeasureBatches(extent, [&] {
    state = 3.9 * state * (1.0 - state);
#if defined(__x86_64__)
    asm volatile("" : "+x"(state));
#else
    asm volatile("" : "+w"(state));
#endif
  });
  PrintCost("floating-point", "step of the logistic map, double precision", extent, batches);
}

}  // namespace

void AddComputation(Command costs) {
  static Extent integer{.batches = 20, .operations = 1'000'000};
  static Extent floating_point{.batches = 20, .operations = 1'000'000};
  const Command whole = costs.Add("integer", "A chain of integer operations.");
  AddExtent(whole, integer);
  whole.Do([] { RunInteger(integer); });
  const Command floating = costs.Add("floating-point", "A chain of double-precision operations.");
  AddExtent(floating, floating_point);
  floating.Do([] { RunFloatingPoint(floating_point); });
}

}  // namespace tare::probe
