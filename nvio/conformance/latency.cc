// What one MPI_File_read_at and one MPI_File_write_at of 4 KiB take, as the program sees it, in a
// file that is cached: prints JSON.
//
//   nvio run --set admit=always -- mpiexec -n 1 latency-mpich FILE [OPERATIONS]

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

constexpr int kPiece = 4 << 10;
constexpr MPI_Offset kSize = 32 << 20;

template <typename Operation>
void measure(const char* name, int operations, Operation&& operation) {
  using Clock = std::chrono::steady_clock;
  std::mt19937_64 random(1);
  std::vector<double> taken;
  taken.reserve(static_cast<std::size_t>(operations));
  for (int i = 0; i < operations; ++i) {
    const MPI_Offset at = static_cast<MPI_Offset>(random() % (kSize / kPiece)) * kPiece;
    const Clock::time_point start = Clock::now();
    if (operation(at) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
    taken.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(taken.begin(), taken.end());
  const auto share = [&](double part) {
    return taken[static_cast<std::size_t>(part * static_cast<double>(taken.size() - 1))];
  };
  std::printf("\"%s\": {\"p50_us\": %.3f, \"p95_us\": %.3f, \"p99_us\": %.3f, \"operations\": %d}",
              name, share(0.5), share(0.95), share(0.99), operations);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: %s FILE [OPERATIONS]\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int operations = argc == 3 ? std::max(std::atoi(argv[2]), 1) : 20000;
  MPI_File file;
  if (MPI_File_open(MPI_COMM_SELF, argv[1],
                    MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                    &file) != MPI_SUCCESS) {
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  std::vector<char> piece(kPiece, 'l');
  for (MPI_Offset at = 0; at < kSize; at += kPiece) {
    MPI_File_write_at(file, at, piece.data(), kPiece, MPI_BYTE, MPI_STATUS_IGNORE);
  }
  std::printf("{");
  measure("read_at", operations, [&](MPI_Offset at) {
    return MPI_File_read_at(file, at, piece.data(), kPiece, MPI_BYTE, MPI_STATUS_IGNORE);
  });
  std::printf(", ");
  measure("write_at", operations, [&](MPI_Offset at) {
    return MPI_File_write_at(file, at, piece.data(), kPiece, MPI_BYTE, MPI_STATUS_IGNORE);
  });
  std::printf("}\n");
  MPI_File_close(&file);
  MPI_Finalize();
  return 0;
}
