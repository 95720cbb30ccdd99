#include "clocks.h"

#include <algorithm>

#include "placed.h"

namespace nvio {
namespace {

std::vector<double> ends_of_collectives(const std::vector<DarshanCall>& calls,
                                        const PlacedFile& placed) {
  std::vector<double> ends;
  for (const DarshanCall& call : calls) {
    if (call.writes ? placed.writes_together : placed.reads_together) ends.push_back(call.end);
  }
  return ends;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void move(DarshanFile& file, std::int64_t rank, double by) {
  const auto moved = [by](double time) { return std::max(0.0, time - by); };
  for (DarshanCalls* level : {&file.posix_calls, &file.mpiio_calls}) {
    const auto calls = level->find(rank);
    if (calls == level->end()) continue;
    for (DarshanCall& call : calls->second) {
      call.start = moved(call.start);
      call.end = moved(call.end);
    }
  }
  for (DarshanCounters& counters : file.mpiio) {
    if (counters.rank != rank) continue;
    for (auto& [name, value] : counters.values) {
      if (name.ends_with("_TIMESTAMP") && value > 0) value = moved(value);
    }
  }
}

}  // namespace

void align_clocks(DarshanLog& log) {
  std::map<std::int64_t, std::vector<double>> apart;  // of the first rank, a collective call each
  for (const DarshanFile& file : log.files) {
    const PlacedFile placed = place(file, log.ranks);
    const auto first = file.mpiio_calls.find(0);
    if (first == file.mpiio_calls.end()) continue;
    const std::vector<double> reference = ends_of_collectives(first->second, placed);
    for (const auto& [rank, calls] : file.mpiio_calls) {
      const std::vector<double> ends = ends_of_collectives(calls, placed);
      if (rank == 0 || ends.size() != reference.size()) continue;
      for (std::size_t i = 0; i < ends.size(); ++i) apart[rank].push_back(ends[i] - reference[i]);
    }
  }
  for (const auto& [rank, times] : apart) {
    if (times.empty()) continue;
    const double by = median(times);
    for (DarshanFile& file : log.files) move(file, rank, by);
  }
}

}  // namespace nvio
