// Columns of an array in one shared file, by PnetCDF; see README.md.
#include <mpi.h>
#include <pnetcdf.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void must(int status) {
  if (status == NC_NOERR) return;
  std::fprintf(stderr, "PnetCDF: %s\n", ncmpi_strerror(status));
  MPI_Abort(MPI_COMM_WORLD, 3);
}

struct Asked {
  const char* path;
  bool reading;
  bool sync;
  MPI_Offset piece;
  MPI_Offset rows;
  int rank;
  int ranks;
};

// The file, in the mode of independent calls, and the variable in it.
std::array<int, 2> open(const Asked& asked) {
  int file = 0;
  int variable = 0;
  if (asked.reading) {
    must(ncmpi_open(MPI_COMM_WORLD, asked.path, NC_NOWRITE, MPI_INFO_NULL, &file));
    must(ncmpi_inq_varid(file, "slab", &variable));
  } else {
    must(
        ncmpi_create(MPI_COMM_WORLD, asked.path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    std::array<int, 2> sides{};
    must(ncmpi_def_dim(file, "row", asked.rows, sides.data()));
    must(ncmpi_def_dim(file, "column", asked.piece * asked.ranks, &sides[1]));
    must(ncmpi_def_var(file, "slab", NC_BYTE, 2, sides.data(), &variable));
    must(ncmpi_enddef(file));
  }
  must(ncmpi_begin_indep_data(file));
  return {file, variable};
}

void touch(const Asked& asked, int file, int variable) {
  const auto mine = static_cast<signed char>(asked.rank + 1);
  std::vector<signed char> piece(static_cast<std::size_t>(asked.piece), mine);
  const std::array<MPI_Offset, 2> count{1, asked.piece};
  for (MPI_Offset row = 0; row < asked.rows; ++row) {
    const std::array<MPI_Offset, 2> start{row, asked.rank * asked.piece};
    if (!asked.reading) {
      must(ncmpi_put_vara_schar(file, variable, start.data(), count.data(), piece.data()));
      continue;
    }
    must(ncmpi_get_vara_schar(file, variable, start.data(), count.data(), piece.data()));
    if (std::any_of(piece.begin(), piece.end(), [&](signed char byte) { return byte != mine; })) {
      std::fprintf(stderr, "rank %d read something else in row %lld\n", asked.rank,
                   static_cast<long long>(row));
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Asked asked{};
  MPI_Comm_rank(MPI_COMM_WORLD, &asked.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &asked.ranks);
  const std::string operation = argc > 2 ? argv[2] : "";
  if (argc < 5 || argc > 6 || (operation != "read" && operation != "write") ||
      (argc == 6 && std::string(argv[5]) != "sync")) {
    if (asked.rank == 0) {
      std::fprintf(stderr, "usage: %s FILE read|write PIECE_BYTES FILE_BYTES [sync]\n", argv[0]);
    }
    MPI_Finalize();
    return 2;
  }
  asked.path = argv[1];
  asked.reading = operation == "read";
  asked.sync = argc == 6;
  asked.piece = std::max(1LL, std::atoll(argv[3]));
  asked.rows = std::atoll(argv[4]) / (asked.piece * asked.ranks);

  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now();
  const auto [file, variable] = open(asked);
  const double opened = now();
  touch(asked, file, variable);
  const double worked = now();
  must(ncmpi_end_indep_data(file));
  if (asked.sync) must(ncmpi_sync(file));
  must(ncmpi_close(file));
  const double closed = now();

  const std::array<double, 4> own{opened - start, worked - opened, closed - worked, closed - start};
  std::array<double, 4> all{};
  MPI_Reduce(own.data(), all.data(), 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (asked.rank == 0) {
    const long long operations = asked.rows * asked.ranks;
    std::printf(
        "{\"open\": %.6f, \"work\": %.6f, \"close\": %.6f, \"total\": %.6f, "
        "\"operations\": %lld, \"bytes\": %lld}\n",
        all[0], all[1], all[2], all[3], operations, operations * asked.piece);
  }
  MPI_Finalize();
  return 0;
}
