// What the shims do before, instead of, or after the MPI's own function. Compiled once for each
// MPI; calls that MPI only through pointers, so that the library links none.
//
// Every function named on_X takes the next X in the chain and X's arguments, and returns what X
// returns to the program.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "handles.h"

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

// Brings the MPI's individual file pointer to where the program believes it is.
void settle(MPI_File fh);

int on_File_open(int (*next)(MPI_Comm, const char*, int, MPI_Info, MPI_File*), MPI_Comm comm,
                 const char* filename, int amode, MPI_Info info, MPI_File* fh);
int on_File_close(int (*next)(MPI_File*), MPI_File* fh);
int on_File_set_view(int (*next)(MPI_File, MPI_Offset, MPI_Datatype, MPI_Datatype, const char*,
                                 MPI_Info),
                     MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                     const char* datarep, MPI_Info info);
int on_File_set_atomicity(int (*next)(MPI_File, int), MPI_File fh, int flag);
int on_File_sync(int (*next)(MPI_File), MPI_File fh);
int on_Finalize(int (*next)());
// On several nodes each must have its manager before any rank of another one needs it.
int on_Init(int (*next)(int*, char***), int* argc, char*** argv);
int on_Init_thread(int (*next)(int*, char***, int, int*), int* argc, char*** argv, int required,
                   int* provided);

// A contiguous transfer that the cache serves itself; false: the MPI must.
bool serve_read(MPI_File fh, bool explicit_offset, MPI_Offset offset, void* buf, long long count,
                MPI_Datatype datatype, MPI_Status* status);
bool serve_write(MPI_File fh, bool explicit_offset, MPI_Offset offset, const void* buf,
                 long long count, MPI_Datatype datatype, MPI_Status* status);

template <typename Next, typename Count>
int on_read_at(Next next, MPI_File fh, MPI_Offset offset, void* buf, Count count,
               MPI_Datatype datatype, MPI_Status* status) {
  if (serve_read(fh, true, offset, buf, count, datatype, status)) return MPI_SUCCESS;
  count_passed();
  return next(fh, offset, buf, count, datatype, status);
}

template <typename Next, typename Count>
int on_write_at(Next next, MPI_File fh, MPI_Offset offset, const void* buf, Count count,
                MPI_Datatype datatype, MPI_Status* status) {
  if (serve_write(fh, true, offset, buf, count, datatype, status)) return MPI_SUCCESS;
  count_passed();
  return next(fh, offset, buf, count, datatype, status);
}

template <typename Next, typename Count>
int on_read(Next next, MPI_File fh, void* buf, Count count, MPI_Datatype datatype,
            MPI_Status* status) {
  if (serve_read(fh, false, 0, buf, count, datatype, status)) return MPI_SUCCESS;
  settle(fh);
  return next(fh, buf, count, datatype, status);
}

template <typename Next, typename Count>
int on_write(Next next, MPI_File fh, const void* buf, Count count, MPI_Datatype datatype,
             MPI_Status* status) {
  if (serve_write(fh, false, 0, buf, count, datatype, status)) return MPI_SUCCESS;
  settle(fh);
  return next(fh, buf, count, datatype, status);
}

// The names the generated shims call.
template <typename... A>
int on_File_read_at(A... a) {
  return on_read_at(a...);
}
template <typename... A>
int on_File_read_at_c(A... a) {
  return on_read_at(a...);
}
template <typename... A>
int on_File_write_at(A... a) {
  return on_write_at(a...);
}
template <typename... A>
int on_File_write_at_c(A... a) {
  return on_write_at(a...);
}
template <typename... A>
int on_File_read(A... a) {
  return on_read(a...);
}
template <typename... A>
int on_File_read_c(A... a) {
  return on_read(a...);
}
template <typename... A>
int on_File_write(A... a) {
  return on_write(a...);
}
template <typename... A>
int on_File_write_c(A... a) {
  return on_write(a...);
}

}  // namespace nvio
