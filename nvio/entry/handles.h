// What nvio knows of an open MPI_File: by lookup, since the handle itself stays the MPI's.
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "../nodes/job_file.h"
#include "../process/hooks.h"
#include "view.h"

namespace nvio {

struct Handle {
  JobFile* file = nullptr;       // holds one of the job's handles on it
  std::vector<int> descriptors;  // that the MPI opened for this handle
  int amode = 0;
  bool is_atomic = false;
  bool is_async = false;                                     // contiguous writes are queued
  std::optional<View> view = View::of({{{0, 1}}, 1, 1}, 0);  // none: the MPI serves everything
  MPI_Offset etype_size = 1;
  bool joins_later = true;  // in nonblocking collective calls the MPI's own code may be joined
  std::optional<MPI_Offset> split;  // bytes of a split collective call that has begun
  // The individual file pointer in etypes. The MPI keeps its own, which we bring up to date only
  // when the MPI is about to look at it.
  std::recursive_mutex pointer;  // an error handler may use it, in the middle of a call
  bool known = false;            // `position` is right
  bool ahead = false;            // the MPI's own pointer is behind it
  MPI_Offset position = 0;
};

// What we do ourselves; never around a call of the MPI that may transfer something.
template <typename Act>
auto inside(Act&& act) {
  const Inside here;
  return act();
}

// The MPI's own file pointer is brought up to date; only it knows the position then. The handle's
// lock must be held.
void bring_up(MPI_File fh, Handle& handle);

// Null when nvio does not serve this file. The pointer is good until `take_handle`.
Handle* find_handle(MPI_File fh);
void add_handle(MPI_File fh, std::unique_ptr<Handle> handle);
std::unique_ptr<Handle> take_handle(MPI_File fh);

// The size of a predefined type whose elements lie side by side, in bytes; 0 for any other type.
MPI_Offset plain_size(MPI_Datatype datatype);

}  // namespace nvio
