// Datatypes that nvio leaves to the MPI, also those of large counts and none at all: an MPI ends a
// program that asks some questions about these. And pieces that one rank writes by nvio, and
// another by the MPI, in windows, between each other's.
//
//   datatypes FOLDER
//
// Prints "datatypes: 0 differences" when all bytes are where the type says.

#include <mpi.h>

#include <string>

#include "checks.h"
#include "opened.h"

namespace {

using checks::expect;
using checks::g_rank;
using checks::Opened;
using std::string;

constexpr int kLetters = 3;

MPI_Datatype letters([[maybe_unused]] bool large) {
  MPI_Datatype type{};
#if MPI_VERSION >= 4
  if (large) {
    MPI_Type_contiguous_c(kLetters, MPI_CHAR, &type);
  } else
#endif
    MPI_Type_contiguous(kLetters, MPI_CHAR, &type);
  MPI_Type_commit(&type);
  return type;
}

void in_memory(const string& path, bool large) {
  Opened file(path);
  MPI_Datatype type = letters(large);
  const string mine(kLetters, static_cast<char>('b' + g_rank));
  const MPI_Offset at = MPI_Offset{100} * (g_rank + 1);
  MPI_File_write_at(file.handle(), at, mine.data(), 1, type, MPI_STATUS_IGNORE);
  expect(file.read(at, kLetters) == mine, "what was written by a datatype");
  string read(kLetters, ' ');
  MPI_File_read_at(file.handle(), at, read.data(), 1, type, MPI_STATUS_IGNORE);
  expect(read == mine, "what was read by a datatype");
  MPI_Type_free(&type);
}

// Not of large counts: plain MPICH 4.0 ends at such a view.
void as_a_view(const string& path) {
  Opened file(path);
  MPI_Datatype type = letters(false);
  const string mine(kLetters, static_cast<char>('b' + g_rank));
  const MPI_Offset at = MPI_Offset{1000} * (g_rank + 1);
  MPI_File_set_view(file.handle(), at, type, type, "native", MPI_INFO_NULL);
  MPI_File_write_at(file.handle(), 1, mine.data(), kLetters, MPI_CHAR, MPI_STATUS_IGNORE);
  MPI_File_set_view(file.handle(), 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  expect(file.read(at + kLetters, kLetters) == mine, "what was written through a view");
  MPI_Type_free(&type);
}

// Rank 0's filetype is one piece and the hole behind it; the others' are so many of these that nvio
// does not keep them.
void between_windows(const string& path) {
  constexpr int kMany = 300000;
  constexpr int kPiece = 4;
  constexpr int kPieces = 1000;
#ifdef OPEN_MPI
  constexpr int kTurns = 50;  // each takes it long
#else
  constexpr int kTurns = 500;
#endif
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Opened file(path, MPI_MODE_UNIQUE_OPEN);
  MPI_Datatype piece{};
  MPI_Datatype one{};
  MPI_Datatype many{};
  MPI_Type_contiguous(kPiece, MPI_BYTE, &piece);
  MPI_Type_create_resized(piece, 0, MPI_Aint{kPiece} * ranks, &one);
  MPI_Type_vector(kMany, 1, 1, one, &many);
  MPI_Type_commit(&one);
  MPI_Type_commit(&many);
  MPI_File_set_view(file.handle(), MPI_Offset{kPiece} * g_rank, MPI_BYTE, g_rank == 0 ? one : many,
                    "native", MPI_INFO_NULL);
  int undone = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const string mine(std::size_t{kPiece} * kPieces, static_cast<char>('a' + turn % 26));
    string there(mine.size(), ' ');
    MPI_File_write_at(file.handle(), 0, mine.data(), kPiece * kPieces, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file.handle(), 0, there.data(), kPiece * kPieces, MPI_BYTE, MPI_STATUS_IGNORE);
    if (there != mine) ++undone;
  }
  expect(undone == 0, "what was written between another rank's windows");
  for (MPI_Datatype* type : {&piece, &one, &many}) MPI_Type_free(type);
}

// An error, and the program goes on.
void none(const string& path) {
  Opened file(path);
  char letter = 'b';
  expect(MPI_File_write_at(file.handle(), 0, &letter, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE) !=
             MPI_SUCCESS,
         "a write by no type");
  expect(
      MPI_File_read(file.handle(), &letter, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE) != MPI_SUCCESS,
      "a read by no type");
  // Not committed: Open MPI may take it all the same.
  MPI_Datatype unready{};
  MPI_Type_contiguous(1, MPI_CHAR, &unready);
  letter = 'a';
  MPI_File_write_at(file.handle(), 0, &letter, 1, unready, MPI_STATUS_IGNORE);
  MPI_Type_free(&unready);
  expect(file.read(0, 1) == "a", "what no type wrote");
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("datatypes", &argc, &argv, 2);
  const string folder = argv[1];
  in_memory(folder + "/small", false);
  in_memory(folder + "/large", true);
  as_a_view(folder + "/view");
  between_windows(folder + "/windows");
  none(folder + "/none");
  checks::end();
  return 0;
}
