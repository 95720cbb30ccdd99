// A file under test.
#pragma once

#include <fcntl.h>
#include <mpi.h>

#include <string>
#include <utility>

#include "checks.h"

namespace checks {

constexpr int kLength = 100000;

// A file that all ranks have open, its first bytes written by rank 0.
class Opened {
 public:
  explicit Opened(std::string path, int mode = 0) : path_(std::move(path)) {
    mode |= MPI_MODE_RDWR | MPI_MODE_CREATE;
    if (MPI_File_open(MPI_COMM_WORLD, path_.c_str(), mode, MPI_INFO_NULL, &file_) != MPI_SUCCESS) {
      give_up(path_.c_str());
    }
    if (g_rank == 0) write(0, std::string(kLength, 'a'));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~Opened() { close(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  const char* path() const { return path_.c_str(); }
  MPI_File handle() const { return file_; }

  void write(MPI_Offset at, const std::string& bytes) {
    MPI_File_write_at(file_, at, bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                      MPI_STATUS_IGNORE);
  }

  // Whether all of it was written. Open MPI 4.1 tells by the count alone.
  bool writes(MPI_Offset at, const std::string& bytes) {
    const int length = static_cast<int>(bytes.size());
    MPI_Status status;
    int count = 0;
    const int result = MPI_File_write_at(file_, at, bytes.data(), length, MPI_BYTE, &status);
#ifdef OPEN_MPI
    if (result == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &count);
#else
    count = length;
#endif
    return result == MPI_SUCCESS && count == length;
  }

  std::string read(MPI_Offset at, int length) {
    std::string bytes(static_cast<std::size_t>(length), '\0');
    MPI_Status status;
    int count = 0;
    if (MPI_File_read_at(file_, at, bytes.data(), length, MPI_BYTE, &status) == MPI_SUCCESS)
      MPI_Get_count(&status, MPI_BYTE, &count);
    bytes.resize(static_cast<std::size_t>(count > 0 ? count : 0));
    return bytes;
  }

  int descriptor(int flags) {
    const int fd = ::open(path(), flags);
    if (fd < 0) give_up(path());
    return fd;
  }

  void close() {
    if (file_ != MPI_FILE_NULL) MPI_File_close(&file_);
    MPI_Barrier(MPI_COMM_WORLD);
  }

 private:
  std::string path_;
  MPI_File file_ = MPI_FILE_NULL;
};

}  // namespace checks
