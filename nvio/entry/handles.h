// What nvio knows of an open MPI_File: by lookup, since the handle itself stays the MPI's.
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <vector>

#include "../nodes/job_file.h"

namespace nvio {

struct Handle {
  JobFile* file = nullptr;       // holds one of the job's handles on it
  std::vector<int> descriptors;  // that the MPI opened for this handle
  int amode = 0;
  bool is_atomic = false;
  bool is_async = false;  // contiguous writes are queued
  // The view, when a transfer through it is one run of bytes; else the MPI serves everything.
  bool simple_view = true;
  MPI_Offset displacement = 0;
  MPI_Offset etype_size = 1;
  // The individual file pointer in etypes. The MPI keeps its own, which we bring up to date only
  // when the MPI is about to look at it.
  std::mutex pointer;
  bool known = false;  // `position` is right
  bool ahead = false;  // the MPI's own pointer is behind it
  MPI_Offset position = 0;
};

// Null when nvio does not serve this file. The pointer is good until `take_handle`.
Handle* find_handle(MPI_File fh);
void add_handle(MPI_File fh, std::unique_ptr<Handle> handle);
std::unique_ptr<Handle> take_handle(MPI_File fh);

// The size of a predefined type whose elements lie side by side, in bytes; 0 for any other type.
MPI_Offset plain_size(MPI_Datatype datatype);

}  // namespace nvio
