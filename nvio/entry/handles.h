// What nvio knows of an open MPI_File: by lookup, since the handle itself stays the MPI's.
#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <vector>

#include "../mpi/shown.h"
#include "../nodes/job_file.h"
#include "../process/hooks.h"

namespace nvio {

struct Handle : Shown {
  JobFile* file = nullptr;       // holds one of the job's handles on it
  std::vector<int> descriptors;  // that the MPI opened for this handle
  Writes writes = Writes::sync;  // the contiguous ones
  bool joins_later = true;       // in nonblocking collective calls the MPI's own code may be joined
  std::optional<MPI_Offset> split;  // bytes of a split collective call that has begun
};

// What we do ourselves; never around a call of the MPI that may transfer something.
template <typename Act>
auto inside(Act&& act) {
  const Inside here;
  return act();
}

// Null when nvio does not serve this file. The pointer is good until `take_handle`.
Handle* find_handle(MPI_File fh);
void add_handle(MPI_File fh, std::unique_ptr<Handle> handle);
std::unique_ptr<Handle> take_handle(MPI_File fh);

}  // namespace nvio
