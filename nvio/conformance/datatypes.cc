// Datatypes that nvio leaves to the MPI, also those of large counts and none at all: an MPI ends a
// program that asks some questions about these.
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
  expect(file.read(0, 1) == "a", "what no type wrote");
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("datatypes", &argc, &argv, 2);
  const string folder = argv[1];
  in_memory(folder + "/small", false);
  in_memory(folder + "/large", true);
  as_a_view(folder + "/view");
  none(folder + "/none");
  checks::end();
  return 0;
}
