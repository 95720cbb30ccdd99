// How a unit cost is measured and printed: batches of operations between two clock readings.
#pragma once

#include <time.h>

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"
#include "line.h"

namespace tare::probe {

/// CLOCK_MONOTONIC in nanoseconds.
inline int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Keeps the compiler from dropping or moving the computation of `value`.
template <typename T>
inline void keep(T& value) {
  asm volatile("" : "+r"(value) : : "memory");
}

/// How much to measure; options of every cost.
struct Extent {
  uint32_t batches = 20;
  uint64_t operations = 1000;  // in each batch
};

/// Adds --batches and --operations to a subcommand.
void add_extent(Command command, Extent& extent);

/// Runs the batches, after one that is not counted. `operation` is what is measured; `before`
/// and `after` surround each batch outside of the time. Returns the mean nanoseconds of one
/// operation for each batch; each holds the clock's overhead once, spread over its operations.
template <typename Before, typename Operation, typename After>
std::vector<double> measure_batches(const Extent& extent, Before&& before, Operation&& operation,
                                    After&& after) {
  std::vector<double> means;
  means.reserve(extent.batches);
  for (uint32_t batch = 0; batch <= extent.batches; ++batch) {
    before();
    const int64_t start = now_ns();
    for (uint64_t i = 0; i < extent.operations; ++i) operation();
    const int64_t end = now_ns();
    after();
    if (batch > 0) {
      means.push_back(static_cast<double>(end - start) / static_cast<double>(extent.operations));
    }
  }
  return means;
}

template <typename Operation>
std::vector<double> measure_batches(const Extent& extent, Operation&& operation) {
  const auto nothing = [] {};
  return measure_batches(extent, nothing, operation, nothing);
}

/// Prints the one line of a cost: docs in probe/README.md. `details` are members of its own.
void print_cost(const std::string& probe, const std::string& per, const Extent& extent,
                const std::vector<double>& batches, Members details = {});

/// Throws std::runtime_error "`what`: reason of errno".
[[noreturn]] void throw_errno(const std::string& what);

/// Lets the calling thread run on this processor only.
void pin_to(int cpu);

/// The processors on which this process may run, ascending.
std::vector<int> allowed_cpus();

}  // namespace tare::probe
