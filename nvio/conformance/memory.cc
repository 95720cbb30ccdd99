// A program that is refused memory from some moment on, and lives on what it has: it reads, writes
// and syncs the file that it has open.
//
//   memory FOLDER
//
// Prints "memory: 0 differences" when all of that was done, and the file holds what was written.

#include <mpi.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "checks.h"

namespace {

using checks::expect;
using checks::give_up;
using std::string;

constexpr int kPiece = 1000;
constexpr int kPieces = 3000;

// While it lives no block of some length can be had.
class Exhausted {
 public:
  Exhausted() {
    constexpr std::size_t kMost = 1 << 20;
    constexpr std::size_t kLeast = 64 << 10;
    blocks_.reserve(1000);
    long pages = 0;
    FILE* sizes = std::fopen("/proc/self/statm", "r");
    if (sizes == nullptr || std::fscanf(sizes, "%ld", &pages) != 1) give_up("/proc/self/statm");
    std::fclose(sizes);
    getrlimit(RLIMIT_AS, &before_);
    const rlimit now{static_cast<rlim_t>(pages) * 4096 + kMost, before_.rlim_max};
    if (setrlimit(RLIMIT_AS, &now) != 0) give_up("a limit");
    for (std::size_t size = kMost; size >= kLeast; size /= 2) {
      while (void* block = std::malloc(size)) blocks_.push_back(block);
    }
  }
  ~Exhausted() {
    setrlimit(RLIMIT_AS, &before_);
    for (void* block : blocks_) std::free(block);
  }
  Exhausted(const Exhausted&) = delete;
  Exhausted& operator=(const Exhausted&) = delete;

 private:
  rlimit before_{};
  std::vector<void*> blocks_;
};

MPI_Offset place(int piece, int rank) { return MPI_Offset{2 * piece + rank} * kPiece; }

}  // namespace

int main(int argc, char** argv) {
  checks::begin("memory", &argc, &argv, 2);
  const string path = string(argv[1]) + "/file";
  MPI_File file;
  if (MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                    &file) != MPI_SUCCESS) {
    give_up(path.c_str());
  }
  const int rank = checks::g_rank;
  const string own(kPiece, static_cast<char>('a' + rank));
  string seen(kPiece, '\0');
  const auto write = [&](int piece) {
    return MPI_File_write_at(file, place(piece, rank), own.data(), kPiece, MPI_BYTE,
                             MPI_STATUS_IGNORE) == MPI_SUCCESS;
  };
  bool is_done = write(0);
  bool is_right = true;
  {
    const Exhausted nothing;
    for (int i = 0; i < kPieces; ++i) is_done = write(i) && is_done;
    for (int i = 0; i < kPieces; i += 7) {
      is_done = MPI_File_read_at(file, place(i, rank), seen.data(), kPiece, MPI_BYTE,
                                 MPI_STATUS_IGNORE) == MPI_SUCCESS &&
                is_done;
      is_right = is_right && seen == own;
    }
    is_done = MPI_File_sync(file) == MPI_SUCCESS && is_done;
  }
  expect(is_done, "a call");
  expect(is_right, "what was read");
  MPI_File_close(&file);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < kPieces; i += 500) {
    expect(checks::seen_from_outside(path, place(i, rank), kPiece) == own, "what was written");
  }
  checks::end();
  return 0;
}
