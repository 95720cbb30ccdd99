// How a job's cost grows with its nodes: connections and memory of its managers, and what its ranks
// wait for at open, sync and close.
#pragma once

#include <vector>

namespace nvio::bench {

struct ScaleOptions {
  std::vector<unsigned> nodes{1, 2, 4, 8, 16, 32, 64};
  unsigned ranks = 256;
  unsigned repeats = 1;  // jobs of each kind, in turns
  unsigned rounds = 5;   // files that each of them opens, writes, syncs and closes
  bool direct = true, relayed = true;
  bool lost = true;  // stop and kill a manager in the end
};

// Prints JSON. Throws std::runtime_error.
int scale(const ScaleOptions& options);

}  // namespace nvio::bench
