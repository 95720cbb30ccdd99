#include "measurement.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace tare::probe {
namespace {

double ClockOverhead() {
  constexpr int kReads = 1000;
  const int64_t start = Now();
  int64_t last = start;
  for (int i = 0; i < kReads; ++i) last = Now();
  return static_cast<double>(last - start) / kReads;
}

}  // namespace

void AddExtent(Command command, Extent& extent) {
  command
      .Add("--batches", extent.batches, "batches to measure",
           "N (default " + std::to_string(extent.batches) + ")")
      .Within(1, 1'000'000);
  command
      .Add("--operations", extent.operations, "operations in a batch",
           "N (default " + std::to_string(extent.operations) + ")")
      .Within(uint64_t{1}, uint64_t{1} << 40);
}

void PrintCost(const std::string& probe, const std::string& per, const Extent& extent,
               const std::vector<double>& batches, Members details) {
  details.insert(details.end(), {{"probe", probe},
                                 {"unit", "ns"},
                                 {"per", per},
                                 {"batches", batches},
                                 {"operations_per_batch", extent.operations},
                                 {"clock_overhead_ns", ClockOverhead()}});
  PrintLine(details);
}

void ThrowErrno(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

void PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    ThrowErrno("cannot run on processor " + std::to_string(cpu) + " alone");
  }
}

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) ThrowErrno("cannot read the affinity");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace tare::probe
