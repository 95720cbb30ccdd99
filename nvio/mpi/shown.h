// What a program sees of a file through its handle, and which bytes a transfer asks for: known
// without the MPI, to who serves the file and to who records the program.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <mutex>
#include <optional>

#include "../cache/view.h"

namespace nvio {

enum class Way { alone, later, together, together_later };

struct Transfer {
  MPI_File fh;
  bool writes;
  bool explicit_offset;
  MPI_Offset offset;
  void* buf;  // of a write too, and then only read
  long long count;
  MPI_Datatype datatype;
};

struct Shown {
  int amode = 0;
  bool is_atomic = false;
  std::optional<View> view = View::of({{{0, 1}}, 1}, 0);  // none: the MPI serves everything
  MPI_Offset etype_size = 1;
  // The individual file pointer in etypes. The MPI keeps its own, which we bring up to date only
  // when the MPI is about to look at it.
  std::recursive_mutex pointer;  // an error handler may use it, in the middle of a call
  bool known = false;            // `position` is right
  bool ahead = false;            // the MPI's own pointer is behind it
  MPI_Offset position = 0;

  // The program has set this one. The lock must be held.
  void set_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                const char* representation);
};

// The MPI's own file pointer is brought up to date; only it knows the position then. The handle's
// lock must be held.
void bring_up(MPI_File fh, Shown& shown);

// How the elements of a transfer lie in memory.
struct Elements {
  MPI_Offset size = 0;    // of one, in bytes; 0: the MPI must do it
  bool is_plain = false;  // side by side
};
Elements elements_of(MPI_Datatype datatype);

// The bytes of a transfer of such elements, or -1 when they cannot be counted.
MPI_Offset length_of(const Transfer& transfer, const Elements& elements);
// The same, or -1 when it is one for the MPI, however the file is cached.
MPI_Offset bytes_of(const Transfer& transfer, const Elements& elements, const Shown& shown);

// Bytes of a view, and from where to where they lie in the file.
struct InView {
  std::uint64_t position, length, begin, end;
};
// Nothing when the MPI must do it. With the individual pointer, the handle's lock must be held.
std::optional<InView> in_view(const Transfer& transfer, Shown& shown, MPI_Offset bytes);

// Where the individual pointer will be when the MPI has done a transfer; nothing where it is not
// known, or where the MPI can be asked: not in a view of pieces, in some of which ROMIO errs. The
// handle's lock must be held.
struct After {
  MPI_Offset position;
  std::uint64_t end;  // of the bytes: a read of a shorter file may move the pointer less far
};
std::optional<After> position_after(const Transfer& transfer, const Shown& shown);

}  // namespace nvio
