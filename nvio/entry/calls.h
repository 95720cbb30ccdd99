// What the shims do before, instead of, or after the MPI's own function. Compiled once for each
// MPI; calls that MPI only through pointers, so that the library links none.
//
// Every function named on_X takes the next X in the chain and X's arguments, and returns what X
// returns to the program.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "handles.h"
#include "transfers.h"

namespace nvio {

enum class Level { mpi, pmpi };

// Marks the time a thread is inside an MPI-IO call: what the MPI calls of itself meanwhile goes
// straight on.
class Nested {
 public:
  explicit Nested(std::size_t index);
  ~Nested();
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  bool outermost() const { return outermost_; }

 private:
  bool outermost_;
};

// The function of the table behind us, at one level; looked up at first use.
void* next_of(Level level, std::size_t index);

template <typename Function>
Function next_function(Level level, std::size_t index) {
  return reinterpret_cast<Function>(next_of(level, index));
}

// The call that this thread is in goes on to the MPI's own code.
void count_passed();

int on_File_open(int (*next)(MPI_Comm, const char*, int, MPI_Info, MPI_File*), MPI_Comm comm,
                 const char* filename, int amode, MPI_Info info, MPI_File* fh);
int on_File_close(int (*next)(MPI_File*), MPI_File* fh);
int on_File_set_view(int (*next)(MPI_File, MPI_Offset, MPI_Datatype, MPI_Datatype, const char*,
                                 MPI_Info),
                     MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                     const char* datarep, MPI_Info info);
int on_File_get_position(int (*next)(MPI_File, MPI_Offset*), MPI_File fh, MPI_Offset* offset);
int on_File_seek(int (*next)(MPI_File, MPI_Offset, int), MPI_File fh, MPI_Offset offset,
                 int whence);
int on_File_set_atomicity(int (*next)(MPI_File, int), MPI_File fh, int flag);
int on_File_sync(int (*next)(MPI_File), MPI_File fh);
int on_Finalize(int (*next)());
// On several nodes each must have its manager before any rank of another one needs it.
int on_Init(int (*next)(int*, char***), int* argc, char*** argv);
int on_Init_thread(int (*next)(int*, char***, int, int*), int* argc, char*** argv, int required,
                   int* provided);

}  // namespace nvio
