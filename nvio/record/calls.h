// The MPI calls of a program that is recorded: passed on as they are, and noted. As entry/calls.h,
// compiled once for each MPI.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "recorder.h"

namespace nvio {

int record_open(Recorder& recorder, int (*next)(MPI_Comm, const char*, int, MPI_Info, MPI_File*),
                MPI_Comm comm, const char* path, int amode, const char* filename, MPI_Info info,
                MPI_File* fh);
int record_close(Recorder& recorder, int (*next)(MPI_File*), MPI_File* fh);
int record_sync(Recorder& recorder, int (*next)(MPI_File), MPI_File fh);

// Around a call that the MPI serves: `begin_recorded` once the handle is known, `end_recorded` when
// it has returned. Only calls that all ranks make together are noted; of the others, their POSIX
// calls are enough.
void begin_recorded(Recorder& recorder, const char* name, MPI_File fh);
void end_recorded();

}  // namespace nvio
