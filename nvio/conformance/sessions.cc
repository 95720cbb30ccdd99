// A program of sessions (MPI 4) alone, which calls no MPI_Finalize. MPICH before 4.2 has MPI-IO
// only where MPI_Init was called: there it is, and the rest is the same.
//
//   sessions FOLDER
//
// Prints "sessions: 0 differences" when the file holds what was written. That nothing else of it is
// left looks who started it.

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "checks.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string path = std::string(argv[1]) + "/" + std::to_string(getpid());
  const std::string piece(5000, 's');
  MPI_Session session;
  MPI_Comm comm;
  if (!checks::begin_session("sessions", session, comm)) return 3;
  MPI_File file;
  const int mode = MPI_MODE_RDWR | MPI_MODE_CREATE;
  if (MPI_File_open(comm, path.c_str(), mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
    MPI_Init(nullptr, nullptr);
    if (MPI_File_open(comm, path.c_str(), mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) return 4;
  }
  MPI_File_write(file, piece.data(), 5000, MPI_BYTE, MPI_STATUS_IGNORE);
  MPI_File_close(&file);
  MPI_Comm_free(&comm);
  MPI_Session_finalize(&session);
  const bool is_right = checks::seen_from_outside(path, 0, 6000) == piece;
  std::printf("sessions: %d differences\n", is_right ? 0 : 1);
  return 0;
}
