// What threads and children do to one descriptor at the same time: the kernel gives each read and
// write at its offset a range of its own, and so does MPI to threads that share an individual file
// pointer. What a signal handler may do, whatever it interrupts; and a thread that is cancelled.
//
//   concurrent FOLDER
//
// Rank 0 acts on a file that all ranks have open. Prints "concurrent: 0 differences" when all is as
// the kernel alone would have it.

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <mpi.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "checks.h"
#include "opened.h"

namespace {

using checks::expect;
using checks::g_rank;
using checks::give_up;
using checks::Opened;
using std::string;

constexpr int kWriters = 4;
constexpr int kRecords = 2000;  // of each writer
constexpr int kRecord = 100;

bool write_records(int fd, char value, int count) {
  const string record(kRecord, value);
  bool all = true;
  for (int i = 0; i < count; ++i) all = write(fd, record.data(), kRecord) == kRecord && all;
  return all;
}

// Whether the first bytes of the file are records of the writers 'A', 'B', and so on, each whole
// and there as often as it was written.
bool holds_all(Opened& file, int writers) {
  const auto length = static_cast<std::size_t>(writers) * kRecords * kRecord;
  const string bytes = file.read(0, static_cast<int>(length));
  if (bytes.size() != length) return false;
  std::vector<int> found(static_cast<std::size_t>(writers));
  for (std::size_t at = 0; at < length; at += kRecord) {
    const int writer = bytes[at] - 'A';
    if (writer < 0 || writer >= writers) return false;
    if (bytes.substr(at, kRecord) != string(kRecord, bytes[at])) return false;
    ++found[static_cast<std::size_t>(writer)];
  }
  return found == std::vector<int>(static_cast<std::size_t>(writers), kRecords);
}

void threads(const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  const int fd = file.descriptor(O_RDWR);
  const std::array<int, 2> same{fd, dup(fd)};
  std::vector<std::thread> writers;
  writers.reserve(kWriters);
  std::atomic<bool> wrote{true};
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      const int own = same[static_cast<std::size_t>(i % 2)];
      if (!write_records(own, static_cast<char>('A' + i), kRecords)) wrote = false;
    });
  }
  for (std::thread& writer : writers) writer.join();
  expect(wrote, "a write of one of several threads");
  expect(holds_all(file, kWriters), "what several threads wrote through one descriptor");

  lseek(fd, 0, SEEK_SET);
  std::atomic<int> read_in_all{0};
  std::vector<std::thread> readers;
  readers.reserve(kWriters);
  for (int i = 0; i < kWriters; ++i) {
    readers.emplace_back([&, i] {
      string record(kRecord, '\0');
      const int own = same[static_cast<std::size_t>(i % 2)];
      while (read(own, record.data(), kRecord) == kRecord) ++read_in_all;
    });
  }
  for (std::thread& reader : readers) reader.join();
  expect(read_in_all == kWriters * kRecords, "what several threads read through one descriptor");
  close(same[1]);
  close(fd);
}

void children(const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  const int fd = file.descriptor(O_RDWR);
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) give_up("pipe");
  const pid_t child = fork();
  if (child < 0) give_up("fork");
  if (child == 0) {
    const bool all = write_records(fd, 'A', 1) && write(ends[1], "", 1) == 1 &&
                     write_records(fd, 'A', kRecords - 1);
    _exit(all ? 0 : 1);
  }
  char begun = 0;
  expect(read(ends[0], &begun, 1) == 1, "a child that writes");
  expect(write_records(fd, 'B', kRecords), "a parent that writes");
  int status = 0;
  expect(waitpid(child, &status, 0) == child && status == 0, "a child that writes ends well");
  expect(holds_all(file, 2), "what a parent and its child wrote through one descriptor");
  close(ends[0]);
  close(ends[1]);
  close(fd);
}

constexpr int kThreads = 4;
constexpr int kEach = 500;  // records of each thread

// A record at the individual file pointer. Where its place is given by an address alone, the MPI
// moves the bytes, and its own pointer.
bool move_record(MPI_File file, bool writes, bool by_address, std::array<std::int64_t, 2>& record) {
  MPI_Aint address = 0;
  MPI_Get_address(record.data(), &address);
  MPI_Datatype placed{};
  MPI_Type_create_hindexed_block(1, 2, &address, MPI_INT64_T, &placed);
  MPI_Type_commit(&placed);
  void* buffer = by_address ? MPI_BOTTOM : record.data();
  const MPI_Datatype type = by_address ? placed : MPI_INT64_T;
  const int count = by_address ? 1 : 2;
  const int result = writes ? MPI_File_write(file, buffer, count, type, MPI_STATUS_IGNORE)
                            : MPI_File_read(file, buffer, count, type, MPI_STATUS_IGNORE);
  MPI_Type_free(&placed);
  return result == MPI_SUCCESS;
}

// Records of two pieces of a view each, at a pointer that several threads share: every number is
// written into one record, and read out of one.
void pointer(const string& path) {
  Opened file(path, MPI_MODE_UNIQUE_OPEN);
  MPI_Datatype piece{};
  MPI_Type_create_resized(MPI_INT64_T, 0, 32, &piece);
  MPI_Type_commit(&piece);
  MPI_File_set_view(file.handle(), MPI_Offset{16} * g_rank, MPI_INT64_T, piece, "native",
                    MPI_INFO_NULL);
  MPI_Type_free(&piece);
  std::array<std::atomic<int>, std::size_t{kThreads} * kEach> read{};
  for (const bool writes : {true, false}) {
    MPI_File_seek(file.handle(), 0, MPI_SEEK_SET);
    std::atomic<bool> moved{true};
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kEach; ++i) {
          std::array<std::int64_t, 2> record{};
          record.fill(writes ? thread * kEach + i : -1);
          if (!move_record(file.handle(), writes, (thread + i) % 3 == 0, record)) moved = false;
          if (writes) continue;
          const bool is_whole = record[0] == record[1] && record[0] >= 0 &&
                                record[0] < static_cast<std::int64_t>(read.size());
          if (is_whole) ++read[static_cast<std::size_t>(record[0])];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    expect(moved, "a transfer of one of several threads");
  }
  const auto right = std::count(read.begin(), read.end(), 1);
  expect(right == std::ptrdiff_t{kThreads} * kEach,
         "what threads wrote and read at one file pointer");
}

// On a thread of its own, which is told to end before, and does so afterwards and not within: none
// of these calls is a point of cancellation, whatever the cache has to write back for them.
template <typename Call>
void cancelled(const string& path, const char* name, Call&& call) {
  Opened file(path + name);
  if (g_rank == 0) {
    const int fd = file.descriptor(O_RDWR);
    struct Case {
      Call& call;
      int fd;
      const char* path;
      bool returned = false;
    } one{call, fd, file.path()};
    pthread_t thread{};
    const auto body = [](void* argument) -> void* {
      int before = 0;
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
      pthread_cancel(pthread_self());
      pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
      Case& of = *static_cast<Case*>(argument);
      of.call(of.fd, of.path);
      of.returned = true;
      pthread_testcancel();
      return nullptr;
    };
    void* result = nullptr;
    if (pthread_create(&thread, nullptr, body, &one) != 0) give_up("pthread_create");
    pthread_join(thread, &result);
    expect(one.returned, name);
    expect(result == PTHREAD_CANCELED, "a thread that was cancelled goes on");
    expect(file.read(0, checks::kLength) == string(checks::kLength, 'a'), "the bytes afterwards");
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// A thread that does nothing but transfers ends with one of them.
void cancelled_at(const string& path, bool writes) {
  Opened file(path);
  if (g_rank == 0) {
    struct Case {
      int fd;
      bool writes;
    } one{file.descriptor(O_RDWR), writes};
    const auto body = [](void* argument) -> void* {
      const Case of = *static_cast<Case*>(argument);
      char byte = 'a';
      while ((of.writes ? pwrite(of.fd, &byte, 1, 0) : pread(of.fd, &byte, 1, 0)) == 1) {
      }
      return nullptr;
    };
    pthread_t thread{};
    void* result = nullptr;
    if (pthread_create(&thread, nullptr, body, &one) != 0) give_up("pthread_create");
    pthread_cancel(thread);
    pthread_join(thread, &result);
    expect(result == PTHREAD_CANCELED, "a thread that only transfers is not cancelled");
    close(one.fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

void cancelled(const string& path) {
  const int saved = fcntl(STDERR_FILENO, F_DUPFD, STDERR_FILENO + 1);
  cancelled(path, "dup2", [](int fd, const char*) { dup2(fd, STDERR_FILENO); });
  dup2(saved, STDERR_FILENO);
  close(saved);
  cancelled(path, "ioctl", [](int fd, const char*) {
    fiemap map{};
    map.fm_length = FIEMAP_MAX_OFFSET;
    ioctl(fd, FS_IOC_FIEMAP, &map);
  });
  cancelled(path, "unlink", [](int, const char* name) { unlink(name); });
  for (const bool writes : {false, true}) cancelled_at(path + "transfer", writes);
}

volatile std::sig_atomic_t g_interrupted = 0;
const char* g_path = nullptr;

// One of the calls that POSIX allows in a handler. It fails: the file is no folder.
void try_to_remove(int) {
  const int saved = errno;
  unlinkat(AT_FDCWD, g_path, AT_REMOVEDIR);
  errno = saved;
  g_interrupted = 1;
}

void interrupted(const string& path) {
  constexpr int kRounds = 20;
  constexpr int kPiece = 64 << 10;
  constexpr int kPieces = 32;
  struct sigaction action {};
  action.sa_handler = try_to_remove;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const string bytes(kPiece, 'i');
  for (int round = 0; round < kRounds; ++round) {
    Opened file(path + std::to_string(round));
    if (g_rank == 0) {
      g_path = file.path();
      g_interrupted = 0;
      itimerval soon{};
      soon.it_value.tv_usec = 500 + 137 * round;
      if (setitimer(ITIMER_REAL, &soon, nullptr) != 0) give_up("setitimer");
      int piece = 0;
      do {
        file.write(MPI_Offset{piece++ % kPieces} * kPiece, bytes);
      } while (g_interrupted == 0);
      expect(file.read(0, kPiece) == bytes, "what was written while a signal came");
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  checks::begin("concurrent", &argc, &argv, 2);
  const string folder = argv[1];
  threads(folder + "/threads");
  children(folder + "/children");
  if (provided == MPI_THREAD_MULTIPLE) pointer(folder + "/pointer");
  cancelled(folder + "/cancelled");
  interrupted(folder + "/interrupted");
  checks::end();
  return 0;
}
