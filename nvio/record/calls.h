// The MPI calls of a program that is recorded: passed on as they are, and noted. As entry/calls.h,
// compiled once for each MPI.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>

#include "../mpi/shown.h"
#include "recorder.h"

namespace nvio {

// `shown`: the access mode as the user has it (`unique`).
int record_open(Recorder& recorder, const std::function<int()>& next, MPI_Comm comm,
                const char* path, int amode, int shown, MPI_File* fh);
int record_close(Recorder& recorder, int (*next)(MPI_File*), MPI_File* fh);
int record_sync(Recorder& recorder, int (*next)(MPI_File), MPI_File fh);

// Around a call that the MPI serves: `begin_recorded` once the handle is known, which it returns if
// it is recorded; `end_recorded` when it has returned. Noted are calls that all ranks make
// together, and with `record_asked` in between what a rank asks for in a view, if nvio could serve
// it. Of all others their POSIX calls are enough.
Shown* begin_recorded(Recorder& recorder, const char* name, MPI_File fh);
void record_asked(const Transfer& transfer, Way way);
void end_recorded();

// What the program sees of a recorded file; null of any other. Good until its close.
Shown* recorded(MPI_File fh);
bool recorded_file_reaches(MPI_File fh, std::uint64_t end);

}  // namespace nvio
