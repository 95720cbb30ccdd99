// A small IOR-like measurement: N ranks touch one shared file in pieces, and the time from open to
// the end of close is what counts.
//
//   grid FILE read|write random|sequential|strided PIECE_BYTES FILE_BYTES TOUCHES
//
// TOUCHES: how many bytes are touched, in units of the file's size. Random pieces are aligned to
// their size. The file must exist for reads. Prints one JSON line: seconds of the slowest rank for
// open, work and close, operations, and the p50 of single operations in microseconds.

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 7) {
    if (rank == 0) {
      std::fprintf(stderr,
                   "usage: %s FILE read|write random|sequential|strided PIECE FILE_BYTES "
                   "TOUCHES\n",
                   argv[0]);
    }
    MPI_Finalize();
    return 2;
  }
  const bool reading = std::strcmp(argv[2], "read") == 0;
  const std::string order = argv[3];
  const long long piece = std::atoll(argv[4]);
  const long long size = std::atoll(argv[5]);
  const double touches = std::atof(argv[6]);
  const long long pieces = size / piece;
  const auto operations = static_cast<long long>(static_cast<double>(pieces) * touches / ranks);
  std::vector<char> buffer(static_cast<std::size_t>(piece), static_cast<char>('a' + rank));
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 17);
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(operations));

  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now();
  MPI_File file;
  MPI_File_open(MPI_COMM_WORLD, argv[1],
                reading ? MPI_MODE_RDONLY : MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
  const double opened = now();
  for (long long i = 0; i < operations; ++i) {
    long long at = 0;
    if (order == "random") {
      at = static_cast<long long>(random() % static_cast<std::uint64_t>(pieces));
    } else if (order == "strided") {
      at = (i * ranks + rank) % pieces;
    } else {
      at = (rank * (pieces / ranks) + i) % pieces;
    }
    const double before = (i & 15) == 0 ? now() : 0;
    const int error = reading
                          ? MPI_File_read_at(file, at * piece, buffer.data(),
                                             static_cast<int>(piece), MPI_BYTE, MPI_STATUS_IGNORE)
                          : MPI_File_write_at(file, at * piece, buffer.data(),
                                              static_cast<int>(piece), MPI_BYTE, MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 3);
    if ((i & 15) == 0) times.push_back(now() - before);
  }
  const double worked = now();
  MPI_File_close(&file);
  const double closed = now();

  double own[4] = {opened - start, worked - opened, closed - worked, closed - start};
  double all[4];
  MPI_Reduce(own, all, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  std::sort(times.begin(), times.end());
  if (rank == 0) {
    std::printf(
        "{\"open\": %.6f, \"work\": %.6f, \"close\": %.6f, \"total\": %.6f, "
        "\"operations\": %lld, \"p50_us\": %.3f}\n",
        all[0], all[1], all[2], all[3], operations * ranks,
        times.empty() ? 0.0 : times[times.size() / 2] * 1e6);
  }
  MPI_Finalize();
  return 0;
}
