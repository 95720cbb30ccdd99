// Random MPI-IO programs: the same seed makes the same program, and each rank writes down all that
// it could observe. Run once with plain MPI and once under nvio, the outputs must be equal.
//
//   histories SEED STEPS FILE OUT [DEPTH]   (OUT.RANK is written by each rank)
//
// With a depth, it is a program of random datatypes alone.
//
// A program is a list of phases. Within a phase ranks write disjoint bytes or only read; between
// phases they synchronise as MPI asks (sync, barrier, sync), so that every observation is defined.

#include "histories.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace histories {

std::uint64_t digest(const void* data, std::size_t length) {
  std::uint64_t hash = 1469598103934665603ULL;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < length; ++i) hash = (hash ^ bytes[i]) * 1099511628211ULL;
  return hash;
}

Program::Program(std::uint64_t seed, std::string path, const std::string& out)
    : shared_(seed), path_(std::move(path)) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  own_.seed(seed * 1000003 + static_cast<std::uint64_t>(rank_));
  log_ = std::fopen((out + "." + std::to_string(rank_)).c_str(), "w");
  if (log_ == nullptr) MPI_Abort(MPI_COMM_WORLD, 2);
}

void Program::run(int steps) {
  if (rank_ == 0) unlink(path_.c_str());
  MPI_Barrier(MPI_COMM_WORLD);
  open(MPI_MODE_CREATE | MPI_MODE_RDWR);
  for (step_ = 0; step_ < steps; ++step_) {
    using Phase = void (Program::*)();
    static constexpr Phase kPhases[] = {&Program::explicit_writes, &Program::explicit_writes,
                                        &Program::explicit_reads,  &Program::explicit_reads,
                                        &Program::pointer_writes,  &Program::pointer_reads,
                                        &Program::views,           &Program::views,
                                        &Program::collective,      &Program::nonblocking,
                                        &Program::ordered,         &Program::split,
                                        &Program::sizes,           &Program::atomic,
                                        &Program::reopen,          &Program::twice,
                                        &Program::posix,           &Program::errors,
                                        &Program::mixed_pointers,  &Program::large,
                                        &Program::displaced,       &Program::split_communicator,
                                        &Program::shared_pointer};
    const auto pick = draw(shared_, std::size(kPhases));
    (this->*kPhases[pick])();
    settle();
  }
  read_back();
  close();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 0) observe_file("final");
}

void Program::note(const char* format, ...) {
  std::fprintf(log_, "%d ", step_);
  va_list arguments;
  va_start(arguments, format);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is set
  std::vfprintf(log_, format, arguments);
  va_end(arguments);
  std::fputc('\n', log_);
}

void Program::open(int amode, MPI_Comm comm) {
  const int error = MPI_File_open(comm, path_.c_str(), amode, MPI_INFO_NULL, &file_);
  if (error != MPI_SUCCESS) {
    note("open %d failed", amode);
    std::fflush(log_);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
}

void Program::settle() {
  MPI_File_sync(file_);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(file_);
}

Bytes Program::random_bytes(std::size_t length) {
  Bytes bytes(length);
  for (std::size_t i = 0; i < length; ++i) {
    if (i % 8 == 0) word_ = own_();
    bytes[i] = static_cast<unsigned char>(word_ >> (8 * (i % 8)));
  }
  return bytes;
}

std::size_t Program::random_length() {
  static constexpr std::size_t kSizes[] = {1, 7, 64, 512, 4096, 4097, 20000, 65536, 150000};
  return kSizes[draw(shared_, std::size(kSizes))];
}

int Program::error_class(int error) {
  int result = 0;
  MPI_Error_class(error, &result);
  return result;
}

void Program::note_read(const char* what, int error, const MPI_Status& status, const Bytes& bytes) {
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  const auto got = static_cast<std::size_t>(std::max(count, 0));
  note("%s class %d count %d digest %016llx", what, error_class(error), count,
       static_cast<unsigned long long>(digest(bytes.data(), std::min(got, bytes.size()))));
}

void Program::note_write(const char* what, int error, const MPI_Status& status) {
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  note("%s class %d count %d", what, error_class(error), count);
}

MPI_Offset Program::piece(MPI_Offset base, std::size_t length, int i, int turn) const {
  const auto slot = static_cast<MPI_Offset>(i) * ranks_ + (rank_ + turn) % ranks_;
  return base + slot * static_cast<MPI_Offset>(length);
}

void Program::read_back() {
  MPI_Offset size = 0;
  MPI_File_get_size(file_, &size);
  Bytes bytes(static_cast<std::size_t>(size) + 100);
  MPI_Status status;
  const int error =
      MPI_File_read_at(file_, 0, bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, &status);
  note_read("whole", error, status, bytes);
}

void Program::observe_file(const char* when) {
  std::FILE* file = std::fopen(path_.c_str(), "r");
  Bytes bytes(64 << 20);
  const std::size_t got = file == nullptr ? 0 : std::fread(bytes.data(), 1, bytes.size(), file);
  if (file != nullptr) std::fclose(file);
  note("%s file %zu bytes %016llx", when, got,
       static_cast<unsigned long long>(digest(bytes.data(), got)));
}

}  // namespace histories

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5 && argc != 6) {
    std::fprintf(stderr, "usage: %s SEED STEPS FILE OUT [DEPTH]\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  {
    histories::Program program(std::strtoull(argv[1], nullptr, 10), argv[3], argv[4]);
    if (argc == 6) {
      program.run_types(std::atoi(argv[2]), std::atoi(argv[5]));
    } else {
      program.run(std::atoi(argv[2]));
    }
  }
  MPI_Finalize();
  return 0;
}
