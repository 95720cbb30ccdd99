// Measures what calls on a file system and in a store cost, in seconds.
#pragma once

#include <functional>
#include <string>

#include "calibration.h"

namespace nvio {

struct CalibrateOptions {
  std::string folder;         // on the file system
  std::string store;          // folder of the store; empty for the one that a run would use
  std::uint32_t clients = 4;  // processes at once, at most
  bool drop_caches = false;   // empty the whole machine's page cache too (root only)
};

// Told of each step before it begins: the share that is done, and what comes.
using Progress = std::function<void(double share, const std::string& what)>;

// Leaves nothing behind. A sentence in `problem`, and false, when it could not or was stopped
// (`stop_calibration`, from a signal handler).
bool calibrate(const CalibrateOptions& options, const Progress& progress, Calibration& calibration,
               std::string& problem);
void stop_calibration();

}  // namespace nvio
