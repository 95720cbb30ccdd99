#include "measurement.h"

#include <sched.h>

#include <array>
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

namespace {

// Sets of as many processors as the kernel may have; cpu_set_t ends at 1024.
constexpr std::size_t kMostSets = 64;
using Sets = std::array<cpu_set_t, kMostSets>;

}  // namespace

void pin_to(int cpu) {
  Sets sets = {};
  CPU_SET_S(static_cast<unsigned>(cpu), sizeof sets, sets.data());
  if (sched_setaffinity(0, sizeof sets, sets.data()) != 0) {
    throw_errno("cannot run on processor " + std::to_string(cpu) + " alone");
  }
}

std::vector<int> allowed_cpus() {
  Sets sets = {};
  if (sched_getaffinity(0, sizeof sets, sets.data()) != 0) throw_errno("cannot read the affinity");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE * static_cast<int>(kMostSets); ++cpu) {
    if (CPU_ISSET_S(static_cast<unsigned>(cpu), sizeof sets, sets.data())) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace tare::probe
