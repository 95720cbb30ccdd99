// A program that writes to a file and closes it while MPI_Finalize deletes its attribute, as
// libraries do that tidy up by themselves; and one of a session, which lasts longer, afterwards. Or
// one whose ranks, one or two, end without MPI_Finalize, rank 1 first, with their file open.
//
//   ended FOLDER [exit]
//
// Prints "ended: 0 differences" when the files hold all that rank 0 wrote, each piece in its place.
// What FOLDER/exit holds after an exit looks who started it: a piece each of 'a', 'b' (if there is
// a rank 1) and 'c'.

#include <mpi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "checks.h"

namespace {

using checks::expect;
using checks::give_up;
using std::string;

constexpr int kPiece = 1000;

MPI_File opened(MPI_Comm comm, const string& path) {
  MPI_File file;
  const int mode = MPI_MODE_RDWR | MPI_MODE_CREATE;
  if (MPI_File_open(comm, path.c_str(), mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
    give_up(path.c_str());
  }
  return file;
}

void write(MPI_File file, char value) {
  const string piece(kPiece, value);
  MPI_File_write(file, piece.data(), kPiece, MPI_BYTE, MPI_STATUS_IGNORE);
}

int write_the_last(MPI_Comm /*comm*/, int /*key*/, void* file, void* /*state*/) {
  write(*static_cast<MPI_File*>(file), 'l');
  return MPI_File_close(static_cast<MPI_File*>(file));
}

void write_at(MPI_File file, int place, char value) {
  const string piece(kPiece, value);
  MPI_File_write_at(file, MPI_Offset{place} * kPiece, piece.data(), kPiece, MPI_BYTE,
                    MPI_STATUS_IGNORE);
}

void wait_for_end(int process) {
  constexpr int kMostMs = 30000;
  pollfd ended{static_cast<int>(syscall(SYS_pidfd_open, process, 0)), POLLIN, 0};
  if (ended.fd < 0) return;
  int found = 0;
  do {  // the launcher tells of it by a signal
    found = poll(&ended, 1, kMostMs);
  } while (found < 0 && errno == EINTR);
  if (found != 1) give_up("a rank that ends");
  close(ended.fd);
}

void exit_with_open_file(const string& path) {
  MPI_File file = opened(MPI_COMM_WORLD, path);
  write_at(file, checks::g_rank, checks::g_rank == 0 ? 'a' : 'b');
  int process = getpid();
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (checks::g_rank != 0) {
    MPI_Send(&process, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    std::exit(0);
  }
  if (ranks > 1) {
    MPI_Recv(&process, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wait_for_end(process);
    string seen(kPiece, '\0');
    MPI_File_read_at(file, kPiece, seen.data(), kPiece, MPI_BYTE, MPI_STATUS_IGNORE);
    expect(seen == string(kPiece, 'b'), "what a rank wrote that has ended");
  }
  write_at(file, 2, 'c');
  std::printf("ended: %d differences\n", checks::g_wrong);
  std::exit(0);
}

#if MPI_VERSION >= 4
// A file of a session of its own.
class OfSession {
 public:
  explicit OfSession(const string& path) {
    MPI_Comm comm;
    if (!checks::begin_session("ended", session_, comm)) give_up("a session");
    file_ = opened(comm, path);
    MPI_Comm_free(&comm);
  }
  MPI_File file() const { return file_; }
  bool closes() {
    const bool done = MPI_File_close(&file_) == MPI_SUCCESS;
    return MPI_Session_finalize(&session_) == MPI_SUCCESS && done;
  }

 private:
  MPI_Session session_{};
  MPI_File file_{};
};
#endif

}  // namespace

int main(int argc, char** argv) {
  checks::begin("ended", &argc, &argv, std::clamp(argc, 2, 3));
  if (argc == 3) exit_with_open_file(string(argv[1]) + "/" + argv[2]);
  const string path = string(argv[1]) + "/" + std::to_string(checks::g_rank);
  MPI_File file = opened(MPI_COMM_SELF, path);
  write(file, 'f');
  write(file, 's');
  int key = 0;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, write_the_last, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, &file);
#if MPI_VERSION >= 4
  OfSession lasting(path + ".session");
  write(lasting.file(), 'o');
#endif
  MPI_Finalize();
#if MPI_VERSION >= 4
  write(lasting.file(), 'p');
  expect(lasting.closes(), "the close of a session's file");
  expect(checks::seen_from_outside(path + ".session", 0, 3 * kPiece) ==
             string(kPiece, 'o') + string(kPiece, 'p'),
         "what was written to a session's file");
#endif
  expect(checks::seen_from_outside(path, 0, 4 * kPiece) ==
             string(kPiece, 'f') + string(kPiece, 's') + string(kPiece, 'l'),
         "what was written while MPI ended");
  if (checks::g_rank == 0) std::printf("ended: %d differences\n", checks::g_wrong);
  return 0;
}
