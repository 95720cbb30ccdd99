// A program whose file system refuses what it wrote only when the cache writes it back, at close.
//
//   refused FILE [again]
//
// Prints "refused: told" when the close returned an error and called the file's error handler, and
// calls that would have gone past the cache had failed, and the sync of queued writes, whatever had
// read the file before. With `again` the file system takes all then, and the file is opened, read,
// written to and closed again.

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int kPlace = 1 << 20;
constexpr int kLength = 4096;
int g_called = 0;

void count_call(MPI_File*, int*, ...) { ++g_called; }  // NOLINT(cert-dcl50-cpp): as MPI wants it

// The handler of a call that fails finds the individual pointer where the program left it.
MPI_Offset g_position = -1;
void ask_position(MPI_File* file, int*, ...) {  // NOLINT(cert-dcl50-cpp): as MPI wants it
  MPI_File_get_position(*file, &g_position);
}

// A file that does not hold what was written may neither be mapped nor cut. Returns how much was
// otherwise.
int wrong_past_the_cache(const char* path) {
  int wrong = open(path, O_WRONLY | O_TRUNC) >= 0 || errno != EFBIG;
  const int fd = open(path, O_RDWR);
  wrong += mmap(nullptr, kLength, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED || errno != EFBIG;
  close(fd);
  return wrong;
}

// The error of a queued write is its file's to tell, and no reader's. Returns how much was
// otherwise.
int wrong_with_queued_writes(const std::string& path) {
  MPI_Info hints;
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "nvio_write", "async");
  MPI_Info_set(hints, "nvio_admit", "never");
  MPI_File file;
  if (MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_RDWR | MPI_MODE_CREATE, hints, &file) !=
      MPI_SUCCESS) {
    MPI_Abort(MPI_COMM_WORLD, 6);
  }
  MPI_Errhandler handler;
  MPI_File_create_errhandler(ask_position, &handler);
  MPI_File_set_errhandler(file, handler);
  MPI_Errhandler_free(&handler);
  const std::vector<char> bytes(kLength, 'q');
  MPI_File_seek(file, kPlace, MPI_SEEK_SET);
  int wrong =
      MPI_File_write(file, bytes.data(), kLength, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS;
  wrong += close(open(path.c_str(), O_RDONLY)) != 0;
  MPI_File reader;
  wrong +=
      MPI_File_open(MPI_COMM_SELF, path.c_str(), MPI_MODE_RDONLY, hints, &reader) != MPI_SUCCESS;
  wrong += MPI_File_close(&reader) != MPI_SUCCESS;
  MPI_Info_free(&hints);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_File_sync(file), &error_class);
  wrong += error_class != MPI_ERR_IO;
  wrong += g_position != kPlace + kLength;
  wrong += MPI_File_close(&file) != MPI_SUCCESS;
  return wrong;
}

// What could not be written is there, what is written now comes over it, and a close that the file
// system takes is no error. Returns how much was otherwise.
int wrong_when_opened_again(const char* path, MPI_Offset place) {
  MPI_File file;
  if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
    MPI_Abort(MPI_COMM_WORLD, 5);
  }
  std::vector<char> bytes(kLength);
  MPI_File_read_at(file, place, bytes.data(), kLength, MPI_BYTE, MPI_STATUS_IGNORE);
  int wrong = bytes != std::vector<char>(kLength, 'x');
  std::fill(bytes.begin(), bytes.end(), 'y');
  wrong += MPI_File_write_at(file, place, bytes.data(), kLength / 2, MPI_BYTE, MPI_STATUS_IGNORE) !=
           MPI_SUCCESS;
  wrong += MPI_File_close(&file) != MPI_SUCCESS;
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 2 && argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  std::signal(SIGXFSZ, SIG_IGN);  // NOLINT(cert-err33-c): it cannot fail
  MPI_Errhandler handler;
  MPI_File_create_errhandler(count_call, &handler);
  MPI_File file;
  if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                    &file) != MPI_SUCCESS) {
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_File_set_errhandler(file, handler);
  const std::vector<char> bytes(kLength, 'x');
  const MPI_Offset place = kPlace + MPI_Offset{rank} * kPlace;
  int wrong = MPI_File_write_at(file, place, bytes.data(), kLength, MPI_BYTE, MPI_STATUS_IGNORE) !=
              MPI_SUCCESS;
  MPI_Barrier(MPI_COMM_WORLD);
  // The file may not be written where the bytes belong; the store's log is shorter.
  rlimit usual{};
  getrlimit(RLIMIT_FSIZE, &usual);
  const rlimit least{kPlace, usual.rlim_max};
  if (setrlimit(RLIMIT_FSIZE, &least) != 0) MPI_Abort(MPI_COMM_WORLD, 4);
  wrong += wrong_past_the_cache(argv[1]);
  wrong += wrong_with_queued_writes(argv[1] + (".queued" + std::to_string(rank)));
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_File_close(&file), &error_class);
  wrong += error_class != MPI_ERR_IO;
  wrong += g_called != 1;
  MPI_Errhandler_free(&handler);
  if (argc == 3) {
    if (setrlimit(RLIMIT_FSIZE, &usual) != 0) MPI_Abort(MPI_COMM_WORLD, 4);
    wrong += wrong_when_opened_again(argv[1], place);
  }
  int all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("refused: %s\n", all == 0 ? "told" : "not told");
  MPI_Finalize();
  return 0;
}
