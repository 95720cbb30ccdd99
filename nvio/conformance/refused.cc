// A program whose file system refuses what it wrote only when the cache writes it back, at close.
//
//   refused FILE
//
// Prints "refused: told" when the close returned an error and called the file's error handler.

#include <mpi.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <vector>

namespace {

constexpr int kPlace = 1 << 20;
int g_called = 0;

void count_call(MPI_File*, int*, ...) { ++g_called; }  // NOLINT(cert-dcl50-cpp): as MPI wants it

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
  std::signal(SIGXFSZ, SIG_IGN);  // NOLINT(cert-err33-c): it cannot fail
  MPI_Errhandler handler;
  MPI_File_create_errhandler(count_call, &handler);
  MPI_File file;
  if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                    &file) != MPI_SUCCESS) {
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_File_set_errhandler(file, handler);
  const std::vector<char> bytes(4096, 'x');
  const MPI_Offset place = kPlace + MPI_Offset{rank} * kPlace;
  int wrong = MPI_File_write_at(file, place, bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                                MPI_STATUS_IGNORE) != MPI_SUCCESS;
  MPI_Barrier(MPI_COMM_WORLD);
  // The file may not be written where the bytes belong; the store's log is shorter.
  const rlimit least{kPlace, kPlace};
  if (setrlimit(RLIMIT_FSIZE, &least) != 0) MPI_Abort(MPI_COMM_WORLD, 4);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_File_close(&file), &error_class);
  wrong += error_class != MPI_ERR_IO;
  wrong += g_called != 1;
  MPI_Errhandler_free(&handler);
  int all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("refused: %s\n", all == 0 ? "told" : "not told");
  MPI_Finalize();
  return 0;
}
