// What a Darshan log tells, as read_log.py prints it: counters of each file and rank, and the calls
// that Darshan's extended tracing (DXT) saw. Times are seconds from each rank's MPI_Init.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nvio {

constexpr std::int64_t kAllRanks = -1;  // of a record that is the sum over all ranks

struct DarshanCounters {
  std::int64_t rank = 0;
  std::map<std::string, double> values;  // by Darshan's names: COLL_OPENS, F_OPEN_START_TIMESTAMP

  double operator[](const std::string& name) const {
    const auto found = values.find(name);
    return found == values.end() ? 0 : found->second;
  }
};

struct DarshanCall {
  bool writes = false;
  std::uint64_t offset = 0;  // bytes; of the MPI-IO level's calls not known to be right
  std::uint64_t length = 0;  // bytes that were moved; 0 of the MPI-IO level's
  double start = 0;
  double end = 0;
};

// A rank's calls on a file, by start.
using DarshanCalls = std::map<std::int64_t, std::vector<DarshanCall>>;

struct DarshanFile {
  std::string path;
  std::string file_system;  // its type; empty where the log does not name it
  std::vector<DarshanCounters> mpiio;
  std::vector<DarshanCounters> posix;
  bool is_streamed = false;  // by stdio, too
  DarshanCalls posix_calls;
  DarshanCalls mpiio_calls;
};

struct DarshanLog {
  std::string problem;  // a sentence, when the text is no such log; the rest is then empty
  std::uint32_t ranks = 0;
  double seconds = 0;                   // MPI_Init to MPI_Finalize
  std::map<std::string, bool> partial;  // by module: whether it ran out of memory
  std::set<std::string> hosts;
  std::vector<DarshanFile> files;  // that MPI-IO opened
};

DarshanLog parse_darshan(std::string_view json);

}  // namespace nvio
