// Integer and floating-point work: chains of operations of which each needs the one before.
#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

// One step of the xorshift64* generator: three shifts, three exclusive ors, a multiplication.
void run_integer(const Extent& extent) {
  uint64_t state = 88172645463325252ULL;
  const std::vector<double> batches = measure_batches(extent, [&] {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    state *= 2685821657736338717ULL;
    asm volatile("" : "+r"(state));
  });
  print_cost("integer", "step of xorshift64*", extent, batches);
}

// One step of the logistic map: two multiplications, a subtraction; stays between 0 and 1.
void run_floating_point(const Extent& extent) {
  double state = 0.3;
  const std::vector<double> batches = measure_batches(extent, [&] {
    state = 3.9 * state * (1.0 - state);
#if defined(__x86_64__)
    asm volatile("" : "+x"(state));
#else
    asm volatile("" : "+w"(state));
#endif
  });
  print_cost("floating-point", "step of the logistic map, double precision", extent, batches);
}

}  // namespace

void add_computation(Command costs) {
  static Extent integer{.batches = 20, .operations = 1'000'000};
  static Extent floating_point{.batches = 20, .operations = 1'000'000};
  const Command whole = costs.add("integer", "A chain of integer operations.");
  add_extent(whole, integer);
  whole.calls([] { run_integer(integer); });
  const Command floating = costs.add("floating-point", "A chain of double-precision operations.");
  add_extent(floating, floating_point);
  floating.calls([] { run_floating_point(floating_point); });
}

}  // namespace tare::probe
