// When a file was opened, synced and closed, as far as Darshan's counters tell: they give a rank's
// first and last times and how often, and the calls between them say the rest.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../record/trace_format.h"
#include "log.h"

namespace nvio {

// From an open to its close; seconds. Calls that start from `open_start` until `until` belong to
// it.
struct Opening {
  double open_start = 0;
  double open_end = 0;
  double close_start = 0;
  double close_end = 0;
  double until = 0;
};

struct PlacedFile {
  std::string lacks;                 // a clause, where the log does not tell enough of this file
  std::vector<std::string> assumed;  // sentences
  std::uint32_t ranks = 1;           // that share a handle
  std::uint64_t flags = 0;           // TraceFlags
  std::uint64_t size = 0;            // when it was opened: what its reads show, at least
  bool reads_together = false;       // its reads are collective, its writes are
  bool writes_together = false;
  double sync_seconds = 0;  // of a sync just before the close; negative: none
  std::map<std::int64_t, std::vector<Opening>> openings;  // by rank
};

PlacedFile place(const DarshanFile& file, std::uint32_t ranks);

}  // namespace nvio
