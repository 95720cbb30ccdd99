// Descriptors that are copies of others, that only tell a size, or transfer in a way of their own:
// what closes one of several, or asks how long the file is, has no reason to write back what is
// cached; what only this descriptor does (O_DIRECT, O_APPEND) is not done to what others wrote. Nor
// does it do what it was not opened for, or leave a lock behind.
//
//   copies FOLDER
//
// Prints "copies: 0 differences" when all is as the kernel alone would have it. Under nvio
// (NVIO_NODES is set) it also expects that bytes are still cached where nothing asks for them.

#include <fcntl.h>
#include <mpi.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "checks.h"
#include "opened.h"

// What stat and the like are in programs built against a C library before 2.33.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" int __xstat(int, const char*, struct stat*);
extern "C" int __lxstat(int, const char*, struct stat*);
extern "C" int __fxstat(int, int, struct stat*);
extern "C" int __fxstatat(int, int, const char*, struct stat*, int);
extern "C" int __fxstatat64(int, int, const char*, struct stat64*, int);
// NOLINTEND(bugprone-reserved-identifier)

namespace {

using checks::expect;
using checks::g_rank;
using checks::give_up;
using checks::kLength;
using checks::Opened;
using checks::seen_from_outside;
using std::string;

constexpr int kFarDescriptor = 900;
constexpr int kSector = 4096;

void expect_cached(const string& path, const char* what) {
  if (std::getenv("NVIO_NODES") == nullptr) return;
  expect(seen_from_outside(path, 0, 1) != "a", what);
}

void sizes(const string& path) {
  Opened file(path);
  if (g_rank == 0) {
    const int fd = file.descriptor(O_RDWR);
    struct stat status {};
    struct statx extended {};
    expect(stat(path.c_str(), &status) == 0 && status.st_size == kLength, "stat");
    expect(lstat(path.c_str(), &status) == 0 && status.st_size == kLength, "lstat");
    expect(fstat(fd, &status) == 0 && status.st_size == kLength, "fstat");
    expect(fstatat(fd, "", &status, AT_EMPTY_PATH) == 0 && status.st_size == kLength, "fstatat");
#ifdef __x86_64__
    constexpr int kVersion = 1;
#else
    constexpr int kVersion = 0;
#endif
    struct stat64 large {};
    expect(__xstat(kVersion, path.c_str(), &status) == 0 && status.st_size == kLength, "__xstat");
    expect(__lxstat(kVersion, path.c_str(), &status) == 0 && status.st_size == kLength, "__lxstat");
    expect(__fxstat(kVersion, fd, &status) == 0 && status.st_size == kLength, "__fxstat");
    expect(
        __fxstatat(kVersion, AT_FDCWD, path.c_str(), &status, 0) == 0 && status.st_size == kLength,
        "__fxstatat");
    expect(
        __fxstatat64(kVersion, AT_FDCWD, path.c_str(), &large, 0) == 0 && large.st_size == kLength,
        "__fxstatat64");
    expect(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended) == 0 &&
               extended.stx_size == kLength,
           "statx");
    expect(lseek(fd, 0, SEEK_END) == kLength, "lseek");
    expect(access(path.c_str(), R_OK) == 0, "access");
    expect_cached(path, "asking for the size wrote the file back");
    close(fd);
    expect(seen_from_outside(path, 0, kLength) == string(kLength, 'a'), "a file after a close");
  }
  MPI_Barrier(MPI_COMM_WORLD);  // another rank's close would write back meanwhile, and may
}

void copies(const string& path) {
  Opened file(path);
  if (g_rank == 0) {
    const int fd = file.descriptor(O_RDWR);
    expect(close(dup(fd)) == 0, "the close of a dup");
    expect(dup2(fd, kFarDescriptor) == kFarDescriptor, "dup2");
    expect(dup2(fd, kFarDescriptor) == kFarDescriptor, "dup2 onto a copy");
    expect(close_range(kFarDescriptor, kFarDescriptor, 0) == 0, "close_range of a copy");
    expect(close(fcntl(fd, F_DUPFD, kFarDescriptor)) == 0, "the close of an F_DUPFD");
    expect_cached(path, "the close of a copy wrote the file back");
    const int left = dup(fd);
    expect(close(fd) == 0, "the close of what was copied");
    expect_cached(path, "the close of what was copied wrote the file back");
    expect(dup2(-1, left) == -1 && errno == EBADF, "dup2 of no descriptor");
    expect(pwrite(left, "still", 5, 100) == 5, "a write after dup2 of no descriptor");
    expect(file.read(100, 6) == "stilla", "what was written after dup2 of no descriptor");
    expect_cached(path, "dup2 of no descriptor closed the other one");
    expect(close(left) == 0, "the last close");
    expect(seen_from_outside(path, 100, 6) == "stilla", "a file after the last close");
  }
  MPI_Barrier(MPI_COMM_WORLD);  // another rank's close would write back meanwhile, and may
}

// Rank 0 writes pieces of no whole sector by MPI-IO; rank 1, which opened the file to read by
// MPI-IO, has a descriptor of it that it may write through.
class WrittenByOne {
 public:
  WrittenByOne(const string& path, int flags) : path_(path) {
    open(g_rank == 0 ? MPI_MODE_RDWR | MPI_MODE_CREATE : MPI_MODE_RDONLY, 0);
    open(g_rank == 0 ? MPI_MODE_RDWR : MPI_MODE_RDONLY, 1);
    if (g_rank == 1) {
      fd_ = ::open(path.c_str(), flags);
      if (fd_ < 0) give_up(path.c_str());
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  WrittenByOne(const WrittenByOne&) = delete;
  WrittenByOne& operator=(const WrittenByOne&) = delete;
  ~WrittenByOne() {
    if (file_ != MPI_FILE_NULL) MPI_File_close(&file_);
    MPI_Barrier(MPI_COMM_WORLD);
    if (g_rank == 0) expect(seen_from_outside(path_, 7, 1003) == string(1003, 'd'), "the end");
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void write() {
    const string bytes(1003, 'd');
    if (g_rank == 0) MPI_File_write_at(file_, 7, bytes.data(), 1003, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  int descriptor() const { return fd_; }

 private:
  // Each rank for itself, rank 0 first: it makes the file.
  void open(int mode, int turn) {
    if (g_rank == turn &&
        MPI_File_open(MPI_COMM_SELF, path_.c_str(), mode, MPI_INFO_NULL, &file_) != MPI_SUCCESS) {
      give_up(path_.c_str());
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  string path_;
  MPI_File file_ = MPI_FILE_NULL;
  int fd_ = -1;
};

void past_the_page_cache(const string& path) {
  WrittenByOne file(path, O_RDWR | O_DIRECT);
  file.write();
  if (g_rank != 1) return;
  void* sector = std::aligned_alloc(kSector, kSector);
  expect(pread(file.descriptor(), sector, kSector, 0) == 1010, "a read by O_DIRECT");
  expect(static_cast<char*>(sector)[7] == 'd', "what was read by O_DIRECT");
  std::free(sector);
  expect(close(file.descriptor()) == 0, "the close of a descriptor with O_DIRECT");
}

void past_the_page_cache_later(const string& path) {
  WrittenByOne file(path, O_RDWR);
  if (g_rank == 1) {
    const int flags = fcntl(file.descriptor(), F_GETFL);
    expect(fcntl(file.descriptor(), F_SETFL, flags | O_DIRECT) == 0, "F_SETFL");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  file.write();
  if (g_rank == 1) expect(close(file.descriptor()) == 0, "the close after F_SETFL");
}

void appending_later(const string& path) {
  WrittenByOne file(path, O_RDWR);
  file.write();
  if (g_rank != 1) return;
  const int other = ::open(path.c_str(), O_RDWR);
  expect(fcntl(file.descriptor(), F_SETFL, O_APPEND) == 0, "F_SETFL to append");
  expect(pwrite(other, "d", 1, 7) == 1, "a write by a descriptor that does not append");
  struct stat status {};
  expect(fstat(other, &status) == 0 && status.st_size == 1010, "the size after it");
  close(other);
  close(file.descriptor());
}

// What a descriptor was not opened for fails, whatever the cache could do.
void one_way(const string& path) {
  Opened file(path);
  if (g_rank == 0) {
    const int reader = file.descriptor(O_RDONLY);
    const int writer = file.descriptor(O_WRONLY);
    char byte = 'x';
    expect(pwrite(reader, &byte, 1, 0) == -1 && errno == EBADF, "a write by O_RDONLY");
    expect(ftruncate(reader, 1) == -1 && errno == EINVAL, "a truncation by O_RDONLY");
    expect(pread(writer, &byte, 1, 0) == -1 && errno == EBADF, "a read by O_WRONLY");
    expect(pread(reader, &byte, 1, kLength - 1) == 1 && byte == 'a', "the bytes after all");
    expect(pwrite(writer, "w", 1, 5) == 1, "a write by O_WRONLY");
    expect(file.read(5, 1) == "w", "what was written by O_WRONLY");
    close(reader);
    close(writer);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// A lock of an opening goes with the program's last descriptor of it.
void locked(const string& path) {
  WrittenByOne file(path, O_RDWR);
  file.write();
  if (g_rank != 1) return;
  expect(flock(file.descriptor(), LOCK_EX) == 0, "flock");
  expect(fcntl(file.descriptor(), F_SETLK, nullptr) == -1 && errno == EFAULT, "F_SETLK of nothing");
  struct flock range {};
  range.l_type = F_WRLCK;
  expect(fcntl(file.descriptor(), F_OFD_SETLK, &range) == 0, "F_OFD_SETLK");
  close(file.descriptor());
  const int other = ::open(path.c_str(), O_RDWR);
  expect(flock(other, LOCK_EX | LOCK_NB) == 0, "flock after the close");
  expect(fcntl(other, F_OFD_SETLK, &range) == 0, "F_OFD_SETLK after the close");
  close(other);
}

void only_a_name(const string& path) {
  WrittenByOne file(path, O_PATH);
  file.write();
  if (g_rank != 1) return;
  char byte = 0;
  expect(pread(file.descriptor(), &byte, 1, 7) == -1 && errno == EBADF, "a read by O_PATH");
  close(file.descriptor());
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("copies", &argc, &argv, 2);
  const string folder = argv[1];
  sizes(folder + "/sizes");
  copies(folder + "/copies");
  past_the_page_cache(folder + "/direct");
  past_the_page_cache_later(folder + "/later");
  appending_later(folder + "/appending");
  only_a_name(folder + "/name");
  one_way(folder + "/one_way");
  locked(folder + "/locked");
  checks::end();
  return 0;
}
