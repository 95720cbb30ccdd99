// `nvio list`: the stores on this machine, of jobs that run and of those that were killed.
#pragma once

#include <string>
#include <vector>

namespace nvio {

struct ListOptions {
  std::vector<std::string> folders;  // in which stores lie; empty: where a job would make its own
  bool json = false;
};

// Prints what is there; changes nothing. Returns the exit status.
int list_stores(const ListOptions& options);

}  // namespace nvio
