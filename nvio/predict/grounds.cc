#include "grounds.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <unordered_set>
#include <vector>

#include "../record/mount_source.h"

namespace nvio {
namespace {

constexpr double kMostUnknown = 0.2;  // of the time in calls: what no cache serves
constexpr double kOtherSpeed = 6;     // times slower or faster than calibrated: another place
constexpr std::size_t kEnough = 64;   // calls, to say how long one takes
constexpr std::size_t kFirst = 256;   // calls: later ones find what was read ahead for these
constexpr std::uint64_t kSmall = 64 << 10;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kAhead = 128 << 10;  // what Linux reads ahead at first, unless told

bool moves(const TraceCall& call) {
  return call.kind == TraceKind::read || call.kind == TraceKind::write;
}

// Files that something else than a cache reaches, and the time in calls on them.
std::string unknown_dominates(const JobTrace& job) {
  std::set<std::uint16_t> aside;
  for (const auto& calls : job.ranks) {
    for (const TraceCall& call : calls) {
      if (call.kind == TraceKind::aside) aside.insert(call.file);
    }
  }
  double all = 0;
  double unknown = 0;
  for (const auto& calls : job.ranks) {
    for (const TraceCall& call : calls) {
      if (!moves(call)) continue;
      all += static_cast<double>(call.duration);
      if (aside.contains(call.file)) unknown += static_cast<double>(call.duration);
    }
  }
  if (unknown <= kMostUnknown * all) return {};
  return "most of the program's time in I/O is on files that it also maps, or reads "
         "asynchronously or by stdio, which a trace does not see";
}

bool is_on(const std::string& file_system, const JobTrace& job, const std::string& calibrated) {
  if (file_system == calibrated) return true;
  return job.types_only &&
         (file_system.empty() || file_system == calibrated.substr(0, calibrated.find(' ')));
}

std::string elsewhere(const JobTrace& job, const Calibration& calibration) {
  std::set<std::uint16_t> used;
  for (const auto& calls : job.ranks) {
    for (const TraceCall& call : calls) {
      if (moves(call)) used.insert(call.file);
    }
  }
  for (const std::uint16_t file : used) {
    if (job.files[file].file_system.empty() && !job.types_only) {
      return "the trace does not tell which file system " + job.files[file].path +
             " is on: record again";
    }
    if (!is_on(job.files[file].file_system, job, calibration.file_system)) {
      return job.files[file].path + " is on " + job.files[file].file_system +
             ", but calibrated was " + calibration.file_system + " (" + calibration.folder +
             "): run `nvio calibrate` in the file's folder";
    }
  }
  return {};
}

// By what was there as it was calibrated: the same path may lead elsewhere on this machine.
std::string store_elsewhere(const Calibration& calibration, const std::string& store) {
  const std::string here = file_system_of(store);
  const std::string& calibrated = calibration.store_file_system;
  if (here.empty() || calibrated.empty() || here == calibrated) return {};
  return "the store would be in " + store + " (" + here + "), but calibrated was one in " +
         calibration.store + " (" + calibrated + "): run `nvio calibrate --store " + store +
         "`, or predict with --store " + calibration.store;
}

// Small calls that nothing has prepared (no neighbour was touched by this rank just before, no page
// of them by anybody, and nothing from which they would have been read ahead) must take what they
// took in calibration.
std::string other_speed(const JobTrace& job, const Costs& costs, TraceKind kind, Way way) {
  struct Turn {
    std::size_t rank;
    const TraceCall* call;
  };
  const std::uint32_t clients = active_ranks(job);
  std::vector<Turn> turns;
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    for (const TraceCall& call : job.ranks[rank]) {
      if (moves(call)) turns.push_back({rank, &call});
    }
  }
  std::stable_sort(turns.begin(), turns.end(),
                   [](const Turn& a, const Turn& b) { return a.call->start < b.call->start; });
  std::unordered_set<std::uint64_t> touched;
  std::unordered_set<std::uint64_t> read_ahead;
  std::vector<std::uint64_t> next(job.ranks.size(), UINT64_MAX);
  std::vector<double> ratios;
  for (const Turn& turn : turns) {
    const TraceCall& call = *turn.call;
    const bool adjoins = call.offset == next[turn.rank];
    next[turn.rank] = call.offset + call.length;
    if (call.length == 0 || call.length > kSmall) continue;
    const std::uint64_t file = std::uint64_t{call.file} << 48;
    const bool is_new = touched.insert(file ^ call.offset / kPage).second;
    // Also strided pieces, in which each rank's own are apart.
    bool is_ahead = false;
    if (call.kind == TraceKind::read) {
      is_ahead = read_ahead.contains(file ^ call.offset / kAhead);
      for (std::uint64_t window = 0; window < 2; ++window) {
        read_ahead.insert(file ^ (call.offset / kAhead + window));
      }
    }
    if (call.kind != kind || adjoins || !is_new || is_ahead || ratios.size() == kFirst) continue;
    ratios.push_back(static_cast<double>(call.duration) / kNanoseconds /
                     costs.transfer(way, call.length, clients));
  }
  if (ratios.size() < kEnough) return {};
  double mean = 0;
  for (const double ratio : ratios) mean += ratio / static_cast<double>(ratios.size());
  if (mean < kOtherSpeed && mean > 1 / kOtherSpeed) return {};
  char text[200];
  std::snprintf(text, sizeof text,
                "small %ss took %.2g times what calibration found: the file system was in another "
                "state (caches warm or cold, other load); calibrate again, as the job runs",
                kind == TraceKind::read ? "read" : "write", mean);
  return text;
}

}  // namespace

std::string file_system_of(const std::string& folder) {
  const int fd = open(folder.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return {};
  std::string source = mount_source(fd);
  close(fd);
  return source;
}

std::uint32_t active_ranks(const JobTrace& job) {
  std::uint32_t active = 0;
  for (const auto& calls : job.ranks) {
    if (std::any_of(calls.begin(), calls.end(), moves)) ++active;
  }
  return std::max(active, 1U);
}

std::string objection(const JobTrace& job, const Calibration& calibration,
                      const std::string& store) {
  std::string why = elsewhere(job, calibration);
  if (why.empty()) why = store_elsewhere(calibration, store);
  return !why.empty() ? why : unknown_dominates(job);
}

std::string objection_to_costs(const JobTrace& job, const Calibration& calibration) {
  const Costs costs(calibration, Case::median);
  std::string why = other_speed(job, costs, TraceKind::read, Way::read);
  if (why.empty()) why = other_speed(job, costs, TraceKind::write, Way::write);
  return why;
}

}  // namespace nvio
