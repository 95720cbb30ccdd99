// A rank that alone cannot join its job's store, for want of address space: it must not go past
// what the others cache.
//
//   apart FILE
//
// Prints "apart: 0 differences" when it could not open the file, which rank 0 had written to.

#include <mpi.h>
#include <sys/resource.h>

#include <cstdio>

#include "checks.h"

namespace {

using checks::expect;

// While it lives, nothing as large as the store can be mapped.
class ShortOfAddresses {
 public:
  ShortOfAddresses() {
    unsigned long pages = 0;
    std::FILE* stream = std::fopen("/proc/self/statm", "r");
    if (stream == nullptr || std::fscanf(stream, "%lu", &pages) != 1) checks::give_up("statm");
    std::fclose(stream);
    getrlimit(RLIMIT_AS, &before_);
    constexpr rlim_t kPage = 4096;
    constexpr rlim_t kMore = 256 << 20;
    const rlimit least{pages * kPage + kMore, before_.rlim_max};
    if (setrlimit(RLIMIT_AS, &least) != 0) checks::give_up("setrlimit");
  }
  ~ShortOfAddresses() { setrlimit(RLIMIT_AS, &before_); }
  ShortOfAddresses(const ShortOfAddresses&) = delete;
  ShortOfAddresses& operator=(const ShortOfAddresses&) = delete;

 private:
  rlimit before_{};
};

int class_of_open(const char* path, MPI_File& file) {
  int error_class = MPI_SUCCESS;
  MPI_Error_class(
      MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file),
      &error_class);
  return error_class;
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("apart", &argc, &argv, 2);
  MPI_File file;
  if (checks::g_rank == 0) {
    expect(class_of_open(argv[1], file) == MPI_SUCCESS, "who can join opens it");
    MPI_File_write_at(file, 0, "cached", 6, MPI_BYTE, MPI_STATUS_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (checks::g_rank == 1) {
    const ShortOfAddresses here;
    MPI_File none;
    expect(class_of_open(argv[1], none) == MPI_ERR_IO, "who cannot join opens nothing");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (checks::g_rank == 0) MPI_File_close(&file);
  checks::end();
  return 0;
}
