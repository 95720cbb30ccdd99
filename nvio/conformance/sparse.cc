// A program whose every transfer goes through a view of small pieces far apart, so that what its
// MPI makes of them are long windows: ranks write theirs, and read each other's.
//
//   sparse FOLDER
//
// Nobody else has the file open: the program says so of one file, a hint of nvio's of another one.
// Prints "sparse: 0 differences" when each piece is what its rank wrote last.
#include <mpi.h>

#include <string>

#include "checks.h"

namespace {

using checks::expect;
using checks::g_rank;
using std::string;

constexpr int kPiece = 64;
constexpr int kApart = 4096;  // from a rank's piece to the next rank's
constexpr int kPieces = 1000;
constexpr int kRounds = 6;

char letter(int rank, int round) { return static_cast<char>('a' + rank + 2 * round); }

void show(MPI_File file, int rank, int ranks) {
  MPI_Datatype type{};
  MPI_Type_vector(kPieces, kPiece, kApart * ranks, MPI_CHAR, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, MPI_Offset{kApart} * rank, MPI_CHAR, type, "native", MPI_INFO_NULL);
  MPI_Type_free(&type);
}

// Each piece is what its rank wrote last.
void exchange(const string& path, int mode, MPI_Info info) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_File file{};
  if (MPI_File_open(MPI_COMM_WORLD, path.c_str(), mode | MPI_MODE_CREATE | MPI_MODE_RDWR, info,
                    &file) != MPI_SUCCESS) {
    checks::give_up(path.c_str());
  }
  constexpr int kLength = kPiece * kPieces;
  for (int round = 0; round < kRounds; ++round) {
    const string mine(kLength, letter(g_rank, round));
    show(file, g_rank, ranks);
    MPI_File_write_at(file, 0, mine.data(), kLength, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    const int other = (g_rank + 1) % ranks;
    string read(kLength, ' ');
    show(file, other, ranks);
    MPI_File_read_at(file, 0, read.data(), kLength, MPI_CHAR, MPI_STATUS_IGNORE);
    expect(read == string(kLength, letter(other, round)), "what another rank wrote");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_File_close(&file);
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("sparse", &argc, &argv, 2);
  const string path = string(argv[1]) + "/sparse";
  exchange(path, MPI_MODE_UNIQUE_OPEN, MPI_INFO_NULL);
  MPI_Info info{};
  MPI_Info_create(&info);
  MPI_Info_set(info, "nvio_unique", "on");
  exchange(path + "-by-hint", 0, info);
  MPI_Info_free(&info);
  checks::end();
}
