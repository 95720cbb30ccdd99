// A program whose second rank calls MPI-IO for the first time when the first is in MPI_Finalize.
//
//   late FOLDER

#include <mpi.h>

#include <string>

#include "checks.h"

namespace {

using checks::g_rank;

void write(const std::string& path) {
  constexpr int kLength = 100000;
  const std::string bytes(kLength, 'w');
  MPI_File file;
  if (MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                    &file) != MPI_SUCCESS) {
    checks::give_up(path.c_str());
  }
  MPI_File_write_at(file, 0, bytes.data(), kLength, MPI_BYTE, MPI_STATUS_IGNORE);
  MPI_File_close(&file);
}

// Attributes go first, while all of MPI still works.
int tell(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* /*state*/) {
  return MPI_Send(nullptr, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("late", &argc, &argv, 2);
  const std::string path = std::string(argv[1]) + "/late-" + std::to_string(g_rank);
  if (g_rank == 0) {
    write(path);
    int key = 0;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, tell, &key, nullptr);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
  } else {
    MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    write(path);
  }
  MPI_Finalize();
  return 0;
}
