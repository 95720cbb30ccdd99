// Phases in which the file is opened, cut, and touched by others, and calls that fail.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "histories.h"

namespace histories {

void Program::sizes() {
  MPI_Offset size = 0;
  MPI_File_get_size(file_, &size);
  note("size %lld", static_cast<long long>(size));
  const MPI_Offset wanted = static_cast<MPI_Offset>(draw(shared_, kRegion * 3 / 2));
  MPI_Barrier(MPI_COMM_WORLD);
  const bool grow = draw(shared_, 4) == 0;
  const int error =
      grow ? MPI_File_preallocate(file_, std::max(size, wanted)) : MPI_File_set_size(file_, wanted);
  note("resize class %d", error_class(error));
  settle();
  if (grow && wanted > size) {
    // What preallocating adds is undefined, and Open MPI writes there what its buffer held.
    const Bytes zeros(static_cast<std::size_t>(wanted - size));
    MPI_Status status;
    if (rank_ == 0) {
      note_write("define",
                 MPI_File_write_at(file_, size, zeros.data(), static_cast<int>(zeros.size()),
                                   MPI_BYTE, &status),
                 status);
    }
    settle();
  }
  MPI_File_get_size(file_, &size);
  note("size %lld", static_cast<long long>(size));
}

void Program::atomic() {
  const int error = MPI_File_set_atomicity(file_, 1);
  note("atomic class %d", error_class(error));
  explicit_writes();
  MPI_Barrier(MPI_COMM_WORLD);
  explicit_reads();
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_set_atomicity(file_, 0);
}

void Program::reopen() {
  close();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 0) observe_file("between");
  MPI_Barrier(MPI_COMM_WORLD);
  const auto way = draw(shared_, 4);
  if (way == 0) {
    open(MPI_MODE_RDONLY);
    explicit_reads();
    close();
    MPI_Barrier(MPI_COMM_WORLD);
    open(MPI_MODE_RDWR);
  } else if (way == 1) {
    open(MPI_MODE_WRONLY);
    explicit_writes();
    settle();
    close();
    MPI_Barrier(MPI_COMM_WORLD);
    open(MPI_MODE_RDWR);
  } else if (way == 2) {
    // A descriptor from before the file was opened by MPI.
    const int early = rank_ == 0 ? ::open(path_.c_str(), O_RDWR) : -1;
    open(MPI_MODE_RDWR | MPI_MODE_APPEND);
    explicit_writes();
    settle();
    if (rank_ == 0) {
      const Bytes bytes = random_bytes(3000);
      note("early pwrite %zd", pwrite(early, bytes.data(), bytes.size(), 70000));
      ::close(early);
    }
    settle();
    explicit_reads();
    MPI_Offset position = 0;
    MPI_File_get_position(file_, &position);
    note("append position %lld", static_cast<long long>(position));
  } else {
    if (rank_ == 0) unlink(path_.c_str());
    MPI_Barrier(MPI_COMM_WORLD);
    open(MPI_MODE_CREATE | MPI_MODE_RDWR);
  }
}

// The same file through a second handle while the first is open.
void Program::twice() {
  const MPI_File first = file_;
  open(MPI_MODE_RDWR, draw(shared_, 2) == 0 ? MPI_COMM_SELF : MPI_COMM_WORLD);
  explicit_writes();
  MPI_File_sync(file_);
  MPI_File_sync(first);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(first);
  MPI_File_sync(file_);
  Bytes bytes(10000);
  MPI_Status status;
  const int error = MPI_File_read_at(first, static_cast<MPI_Offset>(draw(own_, kRegion)),
                                     bytes.data(), 10000, MPI_BYTE, &status);
  note_read("other handle", error, status, bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  close();
  file_ = first;
}

void Program::split_communicator() {
  const MPI_File first = file_;
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank_ % 2, rank_, &half);
  open(MPI_MODE_RDWR, half);
  const std::size_t length = random_length();
  const MPI_Offset at = piece(random_base(), length, 0, 0);
  const Bytes bytes = random_bytes(length);
  MPI_Status status;
  const int error =
      MPI_File_write_at_all(file_, at, bytes.data(), static_cast<int>(length), MPI_BYTE, &status);
  note_write("half write", error, status);
  close();
  MPI_Comm_free(&half);
  file_ = first;
}

// What another library of the program may do to the file meanwhile.
void Program::posix() {
  const auto way = draw(shared_, 5);
  const auto cut = static_cast<off_t>(draw(shared_, kRegion));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 0) {
    if (way == 0) {
      note("truncate %d", truncate(path_.c_str(), cut));
    } else if (way == 1) {
      struct stat status {};
      note("stat %d", stat(path_.c_str(), &status));
      note("st_size %lld", static_cast<long long>(status.st_size));
    } else if (way == 2) {
      observe_file("stdio");
    } else if (way == 3) {
      const int fd = ::open(path_.c_str(), O_RDWR);
      const Bytes bytes = random_bytes(5000);
      note("pwrite %zd", pwrite(fd, bytes.data(), bytes.size(), cut));
      Bytes back(9000);
      const ssize_t got = pread(fd, back.data(), back.size(), cut / 2);
      note("pread %zd %016llx", got,
           static_cast<unsigned long long>(
               digest(back.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)))));
      note("end %lld", static_cast<long long>(lseek(fd, 0, SEEK_END)));
      ::close(fd);
    } else {
      const int fd = ::open(path_.c_str(), O_RDWR);
      note("ftruncate %d", ftruncate(fd, cut));
      ::close(fd);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

void Program::errors() {
  Bytes bytes(64);
  MPI_Status status;
  note("negative offset class %d",
       error_class(MPI_File_read_at(file_, -5, bytes.data(), 8, MPI_BYTE, &status)));
  note("negative count class %d",
       error_class(MPI_File_write_at(file_, 0, bytes.data(), -1, MPI_BYTE, &status)));
  MPI_File none;
  note("missing class %d", error_class(MPI_File_open(MPI_COMM_SELF, (path_ + ".missing").c_str(),
                                                     MPI_MODE_RDONLY, MPI_INFO_NULL, &none)));
  MPI_Info info;
  MPI_File_get_info(file_, &info);
  MPI_Info_free(&info);
  int amode = 0;
  MPI_File_get_amode(file_, &amode);
  note("amode %d", amode);
  note("zero bytes class %d",
       error_class(MPI_File_read_at(file_, 10, bytes.data(), 0, MPI_BYTE, &status)));
}

void Program::large() {
  const std::size_t length = 2'500'000;
  const Bytes bytes = random_bytes(length);
  MPI_Status status;
  if (draw(shared_, 2) == 0 && rank_ == static_cast<int>(draw(own_, 1))) {
    note_write(
        "large write",
        MPI_File_write_at(file_, 12345, bytes.data(), static_cast<int>(length), MPI_BYTE, &status),
        status);
  }
  settle();
  Bytes back(length);
  note_read("large read",
            MPI_File_read_at(file_, 777, back.data(), static_cast<int>(length), MPI_BYTE, &status),
            status, back);
}

}  // namespace histories
