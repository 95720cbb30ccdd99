// What a program may do to a file beside MPI-IO, by calls that a cache below it may not see as
// what they are: streams, descriptors closed in bulk and their numbers used again, appending,
// durable writes, lists of asynchronous calls, holes, splices, paths below an open folder, and
// writes of which the file system takes only a part.
//
//   beside FOLDER
//
// Rank 0 acts on a file that all ranks have open and that it has just written. Prints
// "beside: 0 differences" when all is as the kernel alone would have it.

#include <aio.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <mpi.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "checks.h"
#include "opened.h"

namespace {

using checks::expect;
using checks::g_rank;
using checks::give_up;
using checks::kLength;
using checks::Opened;
using checks::seen_from_outside;
using std::string;

constexpr int kFarDescriptor = 900;
constexpr int kPatience = 20;  // seconds, for what comes at once

// Whether `number` works as one end of a pipe that was given it, and the file is as it was.
void expect_pipe_at(int number, Opened& file, const char* what) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) give_up("pipe");
  int& end = number == ends[0] ? ends[0] : ends[1];
  if (number != end) {
    const int moved = fcntl(end, F_DUPFD, number);
    close(end);
    end = moved;
  }
  expect(end == number, "a closed descriptor's number is not free");
  std::array<char, 6> got{};
  expect(write(ends[1], "hello", 5) == 5 && read(ends[0], got.data(), 5) == 5 &&
             std::strcmp(got.data(), "hello") == 0,
         what);
  close(ends[0]);
  close(ends[1]);
  expect(file.read(0, kLength) == string(kLength, 'a'), what);
}

void streams(const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  const int fd = file.descriptor(O_RDWR);
  FILE* stream = fdopen(fd, "r+");
  expect(stream != nullptr && std::fgetc(stream) == 'a', "a stream of a descriptor");
  std::fclose(stream);
  expect_pipe_at(fd, file, "a pipe where a stream was");
}

void earlier_streams(const string& path) {
  FILE* stream = g_rank == 0 ? std::fopen(path.c_str(), "w+") : nullptr;
  MPI_Barrier(MPI_COMM_WORLD);
  Opened file(path);
  if (g_rank != 0) return;
  const int fd = fileno(stream);
  std::fputs("stream", stream);
  std::fclose(stream);
  expect(file.read(0, 7) == "streama", "what a stream from before wrote at its end");
  file.write(0, "aaaaaa");
  expect_pipe_at(fd, file, "a pipe where a stream from before was");
}

// A stream goes on writing to its descriptor's number, whatever stands behind that by now.
template <typename Redirect>
void as_standard_output(const string& path, Redirect&& redirect) {
  Opened file(path);
  if (g_rank == 0) {
    const int fd = file.descriptor(O_RDWR);
    std::fflush(stdout);
    const int saved = fcntl(STDOUT_FILENO, F_DUPFD, kFarDescriptor);
    redirect(file, fd);
    file.write(0, "cached");
    std::fputs("printed", stdout);
    std::fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    expect(file.read(0, 8) == "printeda", path.c_str());
    close(saved);
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

void given_to_a_stream(const string& path) {
  Opened file(path);
  if (g_rank == 0) {
    FILE* stream = std::fopen((path + ".other").c_str(), "w");
    const int fd = file.descriptor(O_RDWR);
    dup2(fd, fileno(stream));
    file.write(0, "cached");
    std::fputs("stream", stream);
    std::fflush(stream);
    expect(file.read(0, 7) == "streama", "what a stream wrote after dup2");
    std::fclose(stream);
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

void printed(const string& path) {
  Opened file(path);
  if (g_rank == 0) {
    const int fd = file.descriptor(O_RDWR);
    expect(dprintf(fd, "%s", "printed") == 7 && file.read(0, 8) == "printeda", "dprintf");
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// Where a process may have so many.
void far_descriptors(const string& path) {
  constexpr int kVeryFar = 70000;
  Opened file(path);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit more{kVeryFar + 100, std::max<rlim_t>(before.rlim_max, kVeryFar + 100)};
  if (g_rank == 0 && setrlimit(RLIMIT_NOFILE, &more) == 0) {
    const int fd = file.descriptor(O_RDWR);
    const int far = fcntl(fd, F_DUPFD, kVeryFar);
    char byte = 0;
    expect(pread(far, &byte, 1, 0) == 1 && byte == 'a', "a read by a descriptor far up");
    expect(pwrite(far, "f", 1, 1) == 1 && file.read(0, 3) == "afa", "a write by one");
    close(far);
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// What this asks of the file system it may refuse; but what it answers is about all that was
// written.
void asked_by_ioctl(const string& path) {
  const auto expect_written = [&](const char* name, auto&& ask) {
    Opened file(path + name);
    if (g_rank == 0) {
      const int fd = file.descriptor(O_RDWR);
      const int other = ::open((path + ".other").c_str(), O_RDWR | O_CREAT, 0600);
      ask(fd, other);
      expect(seen_from_outside(file.path(), 0, kLength) == string(kLength, 'a'), name);
      close(other);
      close(fd);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  };
  expect_written("extents", [](int fd, int) {
    fiemap map{};
    map.fm_length = FIEMAP_MAX_OFFSET;
    map.fm_flags = FIEMAP_FLAG_SYNC;
    expect(ioctl(fd, FS_IOC_FIEMAP, &map) != 0 || map.fm_mapped_extents != 0, "no extents");
  });
  // Many keep the request in an int, and widen its sign.
  expect_written("extents by an int", [](int fd, int) {
    const int request = static_cast<int>(FS_IOC_FIEMAP);
    fiemap map{};
    map.fm_length = FIEMAP_MAX_OFFSET;
    expect(ioctl(fd, static_cast<unsigned long>(request), &map) != 0 || map.fm_mapped_extents != 0,
           "no extents by an int");
  });
  expect_written("cloned", [](int fd, int other) { ioctl(other, FICLONE, fd); });
  expect_written("clone", [](int fd, int other) { ioctl(fd, FICLONE, other); });
  expect_written("cloned range", [](int fd, int other) {
    expect(ioctl(other, FICLONERANGE, nullptr) == -1, "a range that is nowhere");
    file_clone_range range{};
    range.src_fd = fd;
    ioctl(other, FICLONERANGE, &range);
  });
}

// The kernel says so where a program asks for what cannot be.
void asked_of_nothing() {
  void* const nowhere = reinterpret_cast<void*>(8);
  for (const unsigned long request : {FICLONERANGE, FIDEDUPERANGE}) {
    expect(ioctl(STDOUT_FILENO, request, nowhere) == -1, "a range that cannot be read");
  }
}

// What is read after a nonblocking collective write is taken for a window of the MPI's.
void beyond_the_end(const string& path) {
  Opened file(path);
  char byte = 'e';
  MPI_Request request;
  MPI_File_iwrite_all(file.handle(), &byte, 1, MPI_BYTE, &request);
  // The analyser knows no requests of files.
  MPI_Wait(&request, MPI_STATUS_IGNORE);  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker)
  MPI_File_read_at_all(file.handle(), MPI_Offset{10} * kLength, &byte, 1, MPI_BYTE,
                       MPI_STATUS_IGNORE);
  MPI_Offset size = 0;
  MPI_File_get_size(file.handle(), &size);
  expect(size == kLength, "the size after a read behind the end");
}

void closed_in_bulk(const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  const int fd = file.descriptor(O_RDWR);
  const auto number = static_cast<unsigned>(fd);
  expect(close_range(number, number, 1 << 30) == -1, "close_range with a flag that is none");
  char byte = 0;
  file.write(0, "b");
  expect(pread(fd, &byte, 1, 0) == 1 && byte == 'b', "a descriptor that close_range left open");
  file.write(0, "a");
  expect(close_range(number, number, 0) == 0, "close_range");
  expect_pipe_at(fd, file, "a pipe where close_range was");
  const int source = file.descriptor(O_RDWR);
  expect(dup2(source, kFarDescriptor) == kFarDescriptor, "dup2");
  expect(close_range(kFarDescriptor, ~0U, 0) == 0, "close_range without an end");
  expect_pipe_at(kFarDescriptor, file, "a pipe where close_range without an end was");
  expect(dup2(source, kFarDescriptor) == kFarDescriptor, "dup2");
  closefrom(kFarDescriptor);
  expect_pipe_at(kFarDescriptor, file, "a pipe where closefrom was");
  close(source);
}

void closed_unseen(const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  const int fd = file.descriptor(O_RDWR);
  syscall(SYS_close, fd);
  const int other = ::open((path + ".other").c_str(), O_RDWR | O_CREAT, 0600);
  expect(other == fd, "a closed descriptor's number is not free");
  expect(pwrite(other, "other", 5, 0) == 5, "pwrite");
  expect(seen_from_outside(path + ".other", 0, 6) == "other", "a file with a number used again");
  close(other);
  expect(file.read(0, kLength) == string(kLength, 'a'), "the file whose descriptor was closed");
}

void appended(const string& path) {
  constexpr int kRecords = 200;
  Opened file(path);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int fd = file.descriptor(O_WRONLY | (g_rank % 2 == 0 ? O_APPEND : 0));
  if (g_rank % 2 != 0) expect(fcntl(fd, F_SETFL, O_APPEND) == 0, "F_SETFL");
  const string record(7, static_cast<char>('A' + g_rank));
  for (int i = 0; i < kRecords; ++i) expect(write(fd, record.data(), 7) == 7, "an appending write");
  close(fd);
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank != 0) return;
  const int added = 7 * kRecords * ranks;
  const string bytes = file.read(kLength, added + 1);
  expect(bytes.size() == static_cast<std::size_t>(added), "the end after appending");
  bool whole = true;
  for (std::size_t i = 0; i + 7 <= bytes.size(); i += 7)
    whole = whole && bytes.substr(i, 7) == string(7, bytes[i]) && bytes[i] >= 'A';
  expect(whole, "appended records are torn");
}

void durable(const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  const int plain = file.descriptor(O_RDWR);
  const string by_flag(5000, 'f');
  const iovec vector{const_cast<char*>(by_flag.data()), by_flag.size()};
  expect(pwritev2(plain, &vector, 1, 20000, RWF_DSYNC) == 5000, "pwritev2");
  expect(seen_from_outside(path, 20000, 5000) == by_flag, "a durable pwritev2 is not in the file");
  expect(pwritev2(plain, &vector, 1, 0, RWF_APPEND) == 5000, "pwritev2 to append");
  expect(file.read(kLength, 5001) == by_flag, "what pwritev2 appended");
  close(plain);
  const int synced = file.descriptor(O_RDWR | O_DSYNC);
  const string by_open(5000, 'd');
  expect(pwrite(synced, by_open.data(), by_open.size(), 50000) == 5000, "pwrite");
  expect(seen_from_outside(path, 50000, 5000) == by_open, "a durable pwrite is not in the file");
  expect(file.read(50000, 5000) == by_open, "what was written durably");
  close(synced);
}

void listed(const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  const int fd = file.descriptor(O_RDWR);
  static sem_t told;
  sem_init(&told, 0, 0);
  string bytes(3000, 'l');
  aiocb block{};
  block.aio_fildes = fd;
  block.aio_buf = bytes.data();
  block.aio_nbytes = bytes.size();
  block.aio_offset = 10000;
  block.aio_lio_opcode = LIO_WRITE;
  block.aio_sigevent.sigev_notify = SIGEV_NONE;
  std::array<aiocb*, 1> list{&block};
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD;
  event.sigev_notify_function = [](sigval) { sem_post(&told); };
  expect(lio_listio(LIO_NOWAIT, list.data(), 1, &event) == 0, "lio_listio");
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kPatience;
  expect(sem_timedwait(&told, &until) == 0, "nobody told that a list is through");
  expect(aio_error(&block) == 0 && aio_return(&block) == 3000, "the outcome of a list");
  expect(file.read(10000, 3000) == bytes, "what a list wrote");
  close(fd);
}

void holes_and_splices(const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  const int fd = file.descriptor(O_RDWR);
  file.write(4 << 20, string(10000, 'h'));
  expect(lseek(fd, 2 << 20, SEEK_DATA) == 4 << 20, "where data is");
  file.write(4 << 20, string(10000, 's'));
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) give_up("pipe");
  off64_t from = 4 << 20;
  string got(10000, '\0');
  expect(splice(fd, &from, ends[1], nullptr, got.size(), 0) == 10000 &&
             read(ends[0], got.data(), got.size()) == 10000 && got == string(10000, 's'),
         "what was spliced");
  close(ends[0]);
  close(ends[1]);
  close(fd);
}

// What one rank wrote, another maps that may only read the file.
void mapped_by_a_reader(const string& path) {
  MPI_File file = MPI_FILE_NULL;
  const string bytes(kLength, 'm');
  const auto open_alone = [&](int mode) {
    if (MPI_File_open(MPI_COMM_SELF, path.c_str(), mode, MPI_INFO_NULL, &file) != MPI_SUCCESS)
      give_up(path.c_str());
  };
  if (g_rank == 0) {
    open_alone(MPI_MODE_RDWR | MPI_MODE_CREATE);
    MPI_File_write_at(file, 0, bytes.data(), kLength, MPI_BYTE, MPI_STATUS_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank == 1) {
    open_alone(MPI_MODE_RDONLY);
    const int fd = ::open(path.c_str(), O_RDONLY);
    struct stat status {};
    expect(fstat(fd, &status) == 0 && status.st_size == kLength, "the size to be mapped");
    void* mapped = mmap(nullptr, kLength, PROT_READ, MAP_SHARED, fd, 0);
    expect(mapped != MAP_FAILED && seen_from_outside(path, 0, kLength) == bytes &&
               std::memcmp(mapped, bytes.data(), kLength) == 0,
           "what a reader mapped");
    if (mapped != MAP_FAILED) munmap(mapped, kLength);
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (file != MPI_FILE_NULL) MPI_File_close(&file);
}

void below_a_folder(const string& path) {
  const auto slash = path.rfind('/');
  const string name = path.substr(slash + 1);
  const int folder = ::open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY);
  {
    Opened file(path);
    if (g_rank == 0) {
      close(openat(folder, name.c_str(), O_RDWR | O_TRUNC));
      expect(file.read(0, 10).empty(), "bytes of a file cut by openat");
      file.write(0, "cut");
    }
    file.close();
    if (g_rank == 0) expect(seen_from_outside(path, 0, 10) == "cut", "a file cut by openat");
  }
  {
    Opened file(path);
    if (g_rank == 0) {
      expect(renameat(folder, name.c_str(), folder, (name + ".new").c_str()) == 0, "renameat");
      file.write(0, "moved");
    }
    file.close();
    if (g_rank == 0) {
      expect(seen_from_outside(path + ".new", 0, 6) == "moveda", "a file moved by renameat");
      expect(access(path.c_str(), F_OK) != 0, "a file moved by renameat is still there");
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  {
    Opened file(path);
    if (g_rank == 0) {
      file.write(0, "stay");
      expect(rename(path.c_str(), path.c_str()) == 0, "a file under its own name");
    }
    file.close();
    if (g_rank == 0) expect(seen_from_outside(path, 0, 4) == "stay", "a file under its own name");
  }
  {
    Opened file(path);
    if (g_rank == 0) {
      const string other = name + ".new";
      expect(renameat2(folder, other.c_str(), folder, name.c_str(), RENAME_NOREPLACE) != 0 &&
                 unlinkat(folder, name.c_str(), AT_REMOVEDIR) != 0 &&
                 rename(path.c_str(), path.substr(0, path.rfind('/')).c_str()) != 0,
             "a file is in the way");
    }
    file.close();
    if (g_rank == 0) expect(seen_from_outside(path, 0, 4) == "aaaa", "a file that was in the way");
  }
  {
    Opened file(path);
    if (g_rank == 0) {
      expect(unlinkat(folder, name.c_str(), 0) == 0, "unlinkat");
      expect(std::system(("printf another > '" + path + "'").c_str()) == 0, "another file");
      file.write(0, "gone");
    }
    file.close();
    if (g_rank == 0) expect(seen_from_outside(path, 0, 10) == "another", "a file after unlinkat");
  }
  close(folder);
}

// The first MiB is taken, and more than any store holds is not.
void partly_refused(const string& path) {
  constexpr rlim_t kTaken = 1 << 20;
  constexpr int kMuch = 16 << 20;
  Opened file(path);
  if (g_rank == 0) {
    std::signal(SIGXFSZ, SIG_IGN);  // NOLINT(cert-err33-c): it cannot fail
    rlimit before{};
    if (getrlimit(RLIMIT_FSIZE, &before) != 0) give_up("getrlimit");
    const rlimit least{kTaken, before.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &least) != 0) give_up("setrlimit");
    const bool told = !file.writes(0, string(kMuch, 'p'));
    if (setrlimit(RLIMIT_FSIZE, &before) != 0) give_up("setrlimit");
    expect(told, "a write of which a part was refused succeeded");
  }
  MPI_Barrier(MPI_COMM_WORLD);  // another rank's close would write back meanwhile, and may
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("beside", &argc, &argv, 2);
  const string folder = argv[1];
  asked_of_nothing();
  streams(folder + "/streams");
  earlier_streams(folder + "/earlier");
  as_standard_output(folder + "/dup2", [](Opened&, int fd) { dup2(fd, STDOUT_FILENO); });
  as_standard_output(folder + "/dup", [](Opened&, int fd) {
    close(STDOUT_FILENO);
    expect(dup(fd) == STDOUT_FILENO, "the standard output's number is not free");
  });
  as_standard_output(folder + "/open", [](Opened& file, int) {
    close(STDOUT_FILENO);
    expect(file.descriptor(O_RDWR) == STDOUT_FILENO, "the standard output's number is not free");
  });
  given_to_a_stream(folder + "/stream");
  printed(folder + "/printed");
  far_descriptors(folder + "/far");
  asked_by_ioctl(folder + "/asked");
  beyond_the_end(folder + "/beyond");
  closed_in_bulk(folder + "/bulk");
  closed_unseen(folder + "/unseen");
  appended(folder + "/appended");
  durable(folder + "/durable");
  listed(folder + "/listed");
  holes_and_splices(folder + "/holes");
  mapped_by_a_reader(folder + "/mapped");
  below_a_folder(folder + "/below");
  partly_refused(folder + "/refused");
  checks::end();
  return 0;
}
