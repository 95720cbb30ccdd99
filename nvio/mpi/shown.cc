#include "shown.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <new>

#include "functions.h"
#include "type_map.h"

namespace nvio {
namespace {

constexpr MPI_Offset kMostPacked = 64 << 20;  // bytes of a buffer that does not lie side by side

// The byte of the view where a transfer starts, or -1 when the MPI must do it.
MPI_Offset start_of(const Transfer& transfer, Shown& shown, MPI_Offset bytes) {
  if (bytes % shown.etype_size != 0) return -1;
  MPI_Offset offset = transfer.offset;
  if (!transfer.explicit_offset) {
    if (!shown.known) {
      if (!shown.view->is_one_run()) return -1;
      if (mpi_functions().file_get_position(transfer.fh, &shown.position) != MPI_SUCCESS) {
        return -1;
      }
      shown.known = true;
      shown.ahead = false;
    }
    offset = shown.position;
  }
  if (offset < 0 || offset > (INT64_MAX - bytes) / shown.etype_size) return -1;
  return offset * shown.etype_size;
}

// How the filetype shows the file; nothing where that is the MPI's to know, or takes more memory
// than there is.
std::optional<View> view_of(MPI_Offset displacement, MPI_Datatype etype,
                            MPI_Datatype filetype) try {
  const MPI_Offset plain = filetype == etype ? plain_size(etype) : 0;
  const auto at = static_cast<std::uint64_t>(displacement);
  if (plain != 0) return View::of({{{0, plain}}, plain}, at);
  const auto map = type_map_of(filetype, View::kMostRuns);
  return map ? View::of(*map, at) : std::nullopt;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

}  // namespace

void Shown::set_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                     const char* representation) {
  const bool native = representation != nullptr && std::strcmp(representation, "native") == 0;
  view = native && displacement >= 0 ? view_of(displacement, etype, filetype) : std::nullopt;
  int size = 0;
  if (mpi_functions().type_size(etype, &size) != MPI_SUCCESS || size <= 0) view.reset();
  etype_size = size;
  position = 0;
  known = view.has_value();
}

void bring_up(MPI_File fh, Shown& shown) {
  if (shown.ahead) mpi_functions().file_seek(fh, shown.position, MPI_SEEK_SET);
  shown.known = shown.ahead = false;
}

Elements elements_of(MPI_Datatype datatype) {
  if (const MPI_Offset size = plain_size(datatype); size != 0) return {size, true};
  int size = 0;
  const bool is_one = datatype != mpi_functions().datatype_null &&
                      mpi_functions().type_size(datatype, &size) == MPI_SUCCESS && size > 0;
  return {is_one ? size : 0, false};
}

MPI_Offset length_of(const Transfer& transfer, const Elements& elements) {
  const bool is_counted =
      elements.size != 0 && transfer.count >= 0 && transfer.count <= INT64_MAX / 4 / elements.size;
  return is_counted ? transfer.count * elements.size : -1;
}

MPI_Offset bytes_of(const Transfer& transfer, const Elements& elements, const Shown& shown) {
  const int access = MPI_MODE_RDWR | (transfer.writes ? MPI_MODE_WRONLY : MPI_MODE_RDONLY);
  if (!shown.view || shown.is_atomic || (shown.amode & access) == 0 ||
      (shown.amode & MPI_MODE_SEQUENTIAL) != 0) {
    return -1;
  }
  const MPI_Offset bytes = length_of(transfer, elements);
  if (bytes < 0 || (transfer.buf == nullptr && bytes != 0)) return -1;
  if (!elements.is_plain && (bytes == 0 || bytes > kMostPacked || transfer.count > INT_MAX)) {
    return -1;
  }
  // What is written back later falls into the windows of another job that has read them before.
  const bool may_write = shown.view->is_one_run() || (shown.amode & MPI_MODE_UNIQUE_OPEN) != 0;
  return transfer.writes && !may_write ? -1 : bytes;
}

std::optional<InView> in_view(const Transfer& transfer, Shown& shown, MPI_Offset bytes) {
  const MPI_Offset start = start_of(transfer, shown, bytes);
  if (start < 0) return std::nullopt;
  const auto position = static_cast<std::uint64_t>(start);
  const auto length = static_cast<std::uint64_t>(bytes);
  const auto at = shown.view->offset_of(position);
  const auto last = shown.view->offset_of(position + std::max<std::uint64_t>(length, 1) - 1);
  if (!at || !last || *last == INT64_MAX) return std::nullopt;
  return InView{position, length, *at, *last + 1};
}

std::optional<After> position_after(const Transfer& transfer, const Shown& shown) {
  const MPI_Offset bytes = length_of(transfer, elements_of(transfer.datatype));
  if (!shown.known || !shown.view || shown.view->is_one_run() || bytes <= 0 ||
      bytes % shown.etype_size != 0) {
    return std::nullopt;
  }
  const MPI_Offset after = shown.position + bytes / shown.etype_size;
  const auto last = shown.view->offset_of(
      static_cast<std::uint64_t>(after) * static_cast<std::uint64_t>(shown.etype_size) - 1);
  return last ? std::optional(After{after, *last + 1}) : std::nullopt;
}

}  // namespace nvio
