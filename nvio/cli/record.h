// `nvio record`: a plain run, whose I/O calls are noted.
#pragma once

#include <string>
#include <vector>

namespace nvio {

struct RecordOptions {
  std::string folder = "nvio-trace";  // made; must not hold anything
  std::vector<std::string> command;
};

// Returns the command's exit status, 1 or 2 when it could not be recorded.
int record(const RecordOptions& options);

}  // namespace nvio
