#include "measurement.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace tare::probe {
namespace {

double clock_overhead() {
  constexpr int kReads = 1000;
  const int64_t start = now_ns();
  int64_t last = start;
  for (int i = 0; i < kReads; ++i) last = now_ns();
  return static_cast<double>(last - start) / kReads;
}

}  // namespace

void add_extent(Command command, Extent& extent) {
  command
      .add("--batches", extent.batches, "batches to measure",
           "N (default " + std::to_string(extent.batches) + ")")
      .within(1, 1'000'000);
  command
      .add("--operations", extent.operations, "operations in a batch",
           "N (default " + std::to_string(extent.operations) + ")")
      .within(uint64_t{1}, uint64_t{1} << 40);
}

void print_cost(const std::string& probe, const std::string& per, const Extent& extent,
                const std::vector<double>& batches, Members details) {
  details.insert(details.end(), {{"probe", probe},
                                 {"unit", "ns"},
                                 {"per", per},
                                 {"batches", batches},
                                 {"operations_per_batch", extent.operations},
                                 {"clock_overhead_ns", clock_overhead()}});
  print_line(details);
}

void throw_errno(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    throw_errno("cannot run on processor " + std::to_string(cpu) + " alone");
  }
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) throw_errno("cannot read the affinity");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace tare::probe
