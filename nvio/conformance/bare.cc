// Children that ran no handler of fork, by _Fork and vfork, and what they do with a descriptor that
// they inherit, beside reading and writing, or with a file's name.
//
//   bare FOLDER
//
// Rank 0 acts on files that all ranks have open and of which the cache holds what it has just
// written. Prints "bare: 0 differences" when all is as the kernel alone would have it.

#include <fcntl.h>
#include <malloc.h>
#include <mpi.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "checks.h"
#include "children.h"
#include "opened.h"

namespace {

using checks::ended_well;
using checks::expect;
using checks::g_rank;
using checks::give_up;
using checks::kLength;
using checks::Opened;
using checks::seen_from_outside;
using std::string;

template <typename Child>
bool forked(Child&& child) {
  return checks::forked(child, _Fork);
}

// As rank 0, with a descriptor of the file and another file beside it.
template <typename Step>
void on_first_rank(const string& path, Step&& step) {
  Opened file(path);
  if (g_rank == 0) {
    const int fd = file.descriptor(O_RDWR);
    const int other = ::open((path + ".other").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (other < 0) give_up("another file");
    step(file, fd, other);
    close(other);
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

void sent_from(Opened& file, int fd, int other) {
  expect(forked([&] { return sendfile(other, fd, nullptr, kLength) == kLength; }), "sendfile");
  string sent(kLength, '\0');
  expect(pread(other, sent.data(), kLength, 0) == kLength && sent == string(kLength, 'a'),
         "what a child sent");
  file.write(0, "b");
  expect(file.read(0, 2) == "ba", "what is written after a child has sent");
}

void sent_to(Opened& file, int fd, int other) {
  expect(pwrite(other, "sent", 4, 0) == 4 && lseek(fd, 4, SEEK_SET) == 4, "before a child sends");
  expect(forked([&] { return sendfile(fd, other, nullptr, 4) == 4; }), "sendfile to the file");
  expect(file.read(0, 9) == "aaaasenta", "what a child sent to the file");
}

// A child that reads and writes, before and after it sends.
void used(Opened& file, int fd, int other) {
  expect(forked([&] {
           char byte = 0;
           return pread(fd, &byte, 1, 5) == 1 && byte == 'a' && pwrite(fd, "c", 1, 5) == 1 &&
                  sendfile(other, fd, nullptr, 6) == 6 && pread(fd, &byte, 1, 5) == 1 &&
                  byte == 'c' && close(fd) == 0;
         }),
         "a child that uses what it inherits");
  string sent(6, '\0');
  expect(pread(other, sent.data(), 6, 0) == 6 && sent == "aaaaac", "what it wrote and sent");
  expect(file.read(0, 7) == "aaaaaca", "what it wrote");
}

// Beside a thread that may hold the lock of malloc, which nobody gives back in the child: what may
// be called in a handler of signals may be called there.
void executes(Opened& file, int fd, int other) {
  mallopt(M_ARENA_MAX, 1);
  std::atomic<bool> stop{false};
  std::thread allocates([&stop] {
    while (!stop) {
      void* volatile held = std::malloc(5000);  // more than a thread has for itself
      std::free(held);
    }
  });
  bool all = true;
  for (int i = 0; i < 200 && all; ++i) {
    all = forked([&] {
      alarm(20);  // it would wait for ever
      return dup2(other, STDERR_FILENO) == STDERR_FILENO && close(fd) == 0 &&
             ::open("/dev/null", O_RDWR) >= 0;
    });
  }
  stop = true;
  allocates.join();
  expect(all, "children that only prepare to execute something");
  expect(file.read(0, 1) == "a", "what is cached after them");
}

// POSIX leaves undefined what else the child of a vfork does, and some do it.
// NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)

void appends(Opened& file, int fd, int) {
  const pid_t child = vfork();
  if (child == 0) _exit(fcntl(fd, F_SETFL, O_APPEND) == 0 ? 0 : 1);
  expect(ended_well(child), "F_SETFL");
  expect(write(fd, "END", 3) == 3 && file.read(kLength - 1, 5) == "aEND", "what is appended");
}

// Its environment is empty: what it executes does not look at its streams for nvio.
void prints(Opened& file, int fd, int) {
  const char* words[] = {"echo", "printed", nullptr};
  const char* none[] = {nullptr};
  const pid_t child = vfork();
  if (child == 0) {
    if (dup2(fd, STDOUT_FILENO) == STDOUT_FILENO)
      execve("/bin/echo", const_cast<char**>(words), const_cast<char**>(none));
    _exit(1);
  }
  expect(ended_well(child), "a program that prints");
  expect(file.read(0, 9) == "printed\na", "what it printed");
  file.write(0, "P");
  expect(seen_from_outside(file.path(), 0, 2) == "Pr", "what is written after it");
}

// By its name, where rank 1 has written what rank 0 has open to read: whatever is opened to write
// it back, its number may be another file's in the parent.
void renames(const string& path) {
  MPI_File file;
  const auto open_as = [&](int mode) {
    if (MPI_File_open(MPI_COMM_SELF, path.c_str(), mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
      give_up(path.c_str());
    }
  };
  if (g_rank == 1) open_as(MPI_MODE_RDWR | MPI_MODE_CREATE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank == 0) open_as(MPI_MODE_RDONLY);
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank == 1) MPI_File_write_at(file, 0, "written", 7, MPI_BYTE, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank == 0) {
    const string moved = path + ".moved";
    const pid_t child = vfork();
    if (child == 0) _exit(rename(path.c_str(), moved.c_str()) == 0 ? 0 : 1);
    expect(ended_well(child), "a child that renames");
    expect(seen_from_outside(moved, 0, 9) == "written", "what was written before");
    const int other = ::open((path + ".other").c_str(), O_RDWR | O_CREAT, 0600);
    MPI_File_close(&file);
    expect(fcntl(other, F_GETFD) >= 0, "another file's descriptor after the close");
    close(other);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank == 1) MPI_File_close(&file);
}

// NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)

// The same where much is to be written back, piece by piece: by several threads, if there are any.
void prints_behind_pieces(Opened& file, int fd, int other) {
  constexpr int kPieces = 64;
  constexpr int kApart = 16 << 10;
  for (int i = 1; i <= kPieces; ++i) file.write(kLength + MPI_Offset{i} * kApart, "piece");
  prints(file, fd, other);
  for (int i = 1; i <= kPieces; ++i) {
    expect(seen_from_outside(file.path(), kLength + long{i} * kApart, 5) == "piece", "a piece");
  }
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("bare", &argc, &argv, 2);
  const string folder = argv[1];
  on_first_rank(folder + "/from", sent_from);
  on_first_rank(folder + "/to", sent_to);
  on_first_rank(folder + "/used", used);
  on_first_rank(folder + "/executes", executes);
  on_first_rank(folder + "/appends", appends);
  on_first_rank(folder + "/prints", prints);
  on_first_rank(folder + "/pieces", prints_behind_pieces);
  renames(folder + "/renames");
  checks::end();
  return 0;
}
