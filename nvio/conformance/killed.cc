// A program to be killed: each rank overwrites random cells of its own with the round's number and
// syncs; after every sync it notes the round in PROGRESS.RANK, past nvio.
//
//   killed FILE PROGRESS CELLS SEED     (runs until it is killed)
//
// killed.py replays the same draws and says which rounds each cell may hold.

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

// MPICH 4.2's MPI_Abort returns, and the process ends only later: nothing may be noted until then.
[[noreturn]] void give_up(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 5) give_up(2);
  const std::uint32_t cells = static_cast<std::uint32_t>(std::atol(argv[3]));
  constexpr std::uint32_t kCellWords = 256;  // 1 KiB: four ranks share every page
  // A generator that Python writes in one line, too.
  std::uint64_t state =
      static_cast<std::uint64_t>(std::atol(argv[4])) * 1000 + static_cast<std::uint64_t>(rank);
  const auto draw = [&state] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>(state >> 33);
  };
  const std::string progress = std::string(argv[2]) + "." + std::to_string(rank);
  const int noted = open(progress.c_str(), O_WRONLY | O_CREAT, 0600);
  MPI_File file;
  if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                    &file) != MPI_SUCCESS) {
    give_up(3);
  }
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (std::uint32_t round = 1;; ++round) {
    const std::vector<std::uint32_t> words(kCellWords, round);
    for (int i = 0; i < 16; ++i) {
      const MPI_Offset cell = static_cast<MPI_Offset>(draw() % cells) * ranks + rank;
      if (MPI_File_write_at(file, cell * kCellWords * 4, words.data(), kCellWords, MPI_UINT32_T,
                            MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        give_up(4);
      }
    }
    if (MPI_File_sync(file) != MPI_SUCCESS) give_up(5);
    if (pwrite(noted, &round, sizeof round, 0) < 0) give_up(6);
  }
}
