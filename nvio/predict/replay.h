// A recorded run once more, through the cache itself, on files that only move a clock: every
// decision is that of the cache's own code, every call costs what it took when it was recorded or
// what calibration says, and between calls each rank computes as long as it did. Ranks wait for
// each other at calls that they make together, and nowhere else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../settings/settings.h"
#include "calibration.h"
#include "job_trace.h"

namespace nvio {

struct Replayed {
  std::string problem;  // a sentence, when it could not be replayed
  double seconds = 0;   // from the first call of the job to the end of its last one
  // What the cache did, over all ranks.
  std::uint64_t read_hits = 0;
  std::uint64_t writes_cached = 0;
  std::uint64_t fetched_bytes = 0;
  std::uint64_t written_back_bytes = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  // Reads and writes of the program: the cache counts the pieces that it makes of them.
  std::uint64_t calls = 0;
  std::uint64_t calls_served = 0;  // at least in part
};

// `settings` as the job would have them; its store holds what the run's store would hold, and is
// gone afterwards, also where `stop_replay`, from a signal handler, ends this one and all later
// ones.
void stop_replay();
bool is_replay_stopped();
Replayed replay(const JobTrace& job, const Costs& costs, const Settings& settings);

// The recorded run's own: from the first call to the end of the last one.
double recorded_seconds(const JobTrace& job);

// When work of so many seconds ends that all share in as they arrive, each doing a second's worth
// a second.
double shared_end(std::vector<double> arrivals, double work);

}  // namespace nvio
