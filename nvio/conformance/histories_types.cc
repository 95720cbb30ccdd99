// Phases in which random datatypes say where bytes lie, in the file and in memory.
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "histories.h"
#include "random_types.h"

namespace histories {

using random_types::Types;

// What a phase transfers through which view.
struct Program::Typed {
  MPI_Datatype etype{}, filetype{}, memory{};
  int count = 1;
  MPI_Offset start = 0;   // etypes
  MPI_Offset etypes = 0;  // in a transfer
  MPI_Aint reach = 0;     // bytes of the buffer
  bool in_pieces = false;
  random_types::Places places;  // of a tile's bytes
  MPI_Aint extent = 0;          // of a tile
  MPI_Offset displacement = 0;
};

namespace {

constexpr int kWays = 4;  // alone, together, later, split

MPI_Offset size_of(MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return size;
}

}  // namespace

// What a transfer moved, by where MPI_Pack finds the types' bytes: where an MPI errs, and nvio does
// not, the other tells.
void Program::check_transfer(const Typed& typed, bool writing, const Bytes& buffer) {
  const auto size = static_cast<MPI_Offset>(typed.places.size());
  MPI_Offset at = typed.start * size_of(typed.etype);
  Bytes packed(static_cast<std::size_t>(typed.etypes * size_of(typed.etype)));
  int position = 0;
  MPI_Pack(buffer.data(), typed.count, typed.memory, packed.data(), static_cast<int>(packed.size()),
           &position, MPI_COMM_WORLD);
  int others = 0;
  for (const unsigned char byte : packed) {
    const auto in_tile = static_cast<std::size_t>(at % size);
    const MPI_Offset offset =
        typed.displacement + at++ / size * typed.extent + typed.places[in_tile];
    const auto place = static_cast<std::size_t>(offset);
    if (writing) {
      image_[place] = byte;
      written_.push_back(place);
    } else if (image_[place] != byte) {
      ++others;
    }
  }
  if (others != 0) complain("bytes read through the view", others);
}

// Of what the rank itself has written: the others' bytes are news.
void Program::check_image() {
  Bytes bytes(image_.size());
  MPI_Status status;
  MPI_File_read_at(file_, 0, bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, &status);
  const auto is_other = [&](std::size_t at) { return bytes[at] != image_[at]; };
  const auto others = std::count_if(written_.begin(), written_.end(), is_other);
  if (others != 0) complain("bytes of the file", static_cast<int>(others));
  image_ = std::move(bytes);
  written_.clear();
}

void Program::complain(const char* what, int count) const {
  std::fprintf(stderr, "rank %d, step %d: %d wrong %s\n", rank_, step_, count, what);
}

void Program::run_types(int steps, int depth) {
  depth_ = depth;
  if (rank_ == 0) unlink(path_.c_str());
  MPI_Barrier(MPI_COMM_WORLD);
  open(MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_UNIQUE_OPEN);
  MPI_File_open(MPI_COMM_SELF, (path_ + "." + std::to_string(rank_)).c_str(),
                MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &alone_);
  image_ = random_bytes(static_cast<std::size_t>(kRegion));
  MPI_Bcast(image_.data(), static_cast<int>(kRegion), MPI_BYTE, 0, MPI_COMM_WORLD);
  MPI_Status status;
  if (rank_ == 0) {
    MPI_File_write_at(file_, 0, image_.data(), static_cast<int>(kRegion), MPI_BYTE, &status);
  }
  settle();
  for (step_ = 0; step_ < steps; ++step_) types();
  read_back();
  close();
  MPI_File_close(&alone_);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 0) observe_file("final");
}

void Program::types() {
  static const MPI_Datatype kUnits[] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE};
  const MPI_Datatype unit = kUnits[draw(shared_, std::size(kUnits))];
  const int k = static_cast<int>(1 + draw(shared_, draw(shared_, 4) == 0 ? 300 : 6));
  const bool interleaved = draw(shared_, 2) == 0;
  const bool derived = interleaved || draw(shared_, 2) == 0;
  Typed typed;
  MPI_Type_contiguous(derived ? k : 1, unit, &typed.etype);
  MPI_Type_commit(&typed.etype);
  const MPI_Offset width = size_of(typed.etype);
  // Ranks' pieces between each other's, of one type; or each in a part of its own, of its own type.
  constexpr MPI_Aint kPart = 100000;
  MPI_Datatype wide{};
  MPI_Type_create_resized(typed.etype, 0, static_cast<MPI_Aint>(width) * (interleaved ? ranks_ : 1),
                          &wide);
  Types file_types(interleaved ? shared_ : own_, wide, true);
  typed.filetype = file_types.make(
      static_cast<int>(1 + draw(shared_, static_cast<std::uint64_t>(depth_))), kPart);
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(typed.filetype, &lower, &typed.extent);
  typed.in_pieces = typed.extent != size_of(typed.filetype);
  typed.places = random_types::packed_places(typed.filetype, kPart + 1);
  Types memory_types(own_, typed.etype, false);
  typed.memory = draw(own_, 3) == 0 ? typed.etype : memory_types.make(std::min(2, depth_), kPart);
  typed.count = static_cast<int>(1 + draw(own_, 3));
  MPI_Type_get_extent(typed.memory, &lower, &extent);
  MPI_Aint true_lower = 0;
  MPI_Aint true_extent = 0;
  MPI_Type_get_true_extent(typed.memory, &true_lower, &true_extent);
  typed.reach = extent * (typed.count - 1) + true_lower + true_extent;
  typed.etypes = size_of(typed.memory) * typed.count / width;
  typed.start = static_cast<MPI_Offset>(
      draw(own_, static_cast<std::uint64_t>(2 * size_of(typed.filetype) / width)));
  // ROMIO refuses some: then this rank would be back while the others wait for it.
  const int error =
      MPI_File_set_view(alone_, 0, typed.etype, typed.filetype, "native", MPI_INFO_NULL);
  int is_refused = error == MPI_SUCCESS ? 0 : 1;
  note("view class %d width %lld interleaved %d", error_class(error), static_cast<long long>(width),
       interleaved ? 1 : 0);
  MPI_Allreduce(MPI_IN_PLACE, &is_refused, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (is_refused == 0) through_view(typed, interleaved);
  MPI_Type_free(&wide);
  MPI_Type_free(&typed.filetype);
  if (typed.memory != typed.etype) MPI_Type_free(&typed.memory);
  MPI_Type_free(&typed.etype);
}

void Program::through_view(Typed& typed, bool interleaved) {
  const MPI_Offset width = size_of(typed.etype);
  const MPI_Offset base = static_cast<MPI_Offset>(draw(shared_, 5000));
  const MPI_Offset displacement =
      base + rank_ * (interleaved ? width : static_cast<MPI_Offset>(kRegion / ranks_));
  typed.displacement = displacement;
  const int error =
      MPI_File_set_view(file_, displacement, typed.etype, typed.filetype, "native", MPI_INFO_NULL);
  note("set_view %d", error_class(error));
  observe_view(typed);
  // Within the file, and within the rank's part.
  MPI_Offset end = 0;
  MPI_File_get_byte_offset(file_, typed.start + 4 * typed.etypes, &end);
  const MPI_Offset part = displacement + static_cast<MPI_Offset>(kRegion / ranks_) - width;
  int fits = end < (interleaved ? kRegion - width : part) ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &fits, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  note("fits %d", fits);
  if (fits != 0) {
    transfer_all_typed(typed, true);
    settle();
    transfer_all_typed(typed, false);
    settle();
  }
  reset_view();
  check_image();
}

void Program::observe_view(const Typed& typed) {
  for (const MPI_Offset etype : {MPI_Offset{0}, typed.start, typed.start + typed.etypes}) {
    MPI_Offset offset = 0;
    MPI_File_get_byte_offset(file_, etype, &offset);
    note("etype %lld at %lld", static_cast<long long>(etype), static_cast<long long>(offset));
  }
  MPI_Aint extent = 0;
  MPI_File_get_type_extent(file_, typed.memory, &extent);
  note("extent %lld", static_cast<long long>(extent));
}

void Program::transfer_all_typed(Typed& typed, bool writing) {
  const bool at = draw(shared_, 2) == 0;
  const int way = static_cast<int>(draw(shared_, kWays));
  MPI_File_seek(file_, typed.start, MPI_SEEK_SET);
  const MPI_Offset first = typed.start;
  for (int i = 0; i < 3; ++i) {
    Bytes buffer = random_bytes(static_cast<std::size_t>(typed.reach));
    MPI_Status status;
    transfer_typed(typed, writing, at, way, buffer.data(), status);
    check_transfer(typed, writing, buffer);
    int elements = 0;
    MPI_Get_elements(&status, MPI_BYTE, &elements);
    note("%s way %d at %d: %d bytes, buffer %016llx", writing ? "typed write" : "typed read", way,
         at ? 1 : 0, elements,
         static_cast<unsigned long long>(digest(buffer.data(), buffer.size())));
    MPI_Offset position = 0;
    MPI_File_get_position(file_, &position);
    note("position %lld", static_cast<long long>(position));
    typed.start += typed.etypes;
  }
  typed.start = first;
}

void Program::transfer_typed(const Typed& typed, bool writing, bool at, int way, void* buffer,
                             MPI_Status& status) {
  const MPI_Offset start = typed.start;
  const int count = typed.count;
  const MPI_Datatype type = typed.memory;
  const bool together = draw(shared_, 2) == 0;
  // One run that is moved later is the MPI's own to move.
  if (way == 2 && !together && !typed.in_pieces) way = 0;
  // Both of a pair, with explicit offset and without.
  const auto call = [&](auto&& with_offset, auto&& without) {
    return at ? with_offset() : without();
  };
  MPI_Request request{};
  int error = MPI_SUCCESS;
  if (way == 0) {
    error =
        writing
            ? call([&] { return MPI_File_write_at(file_, start, buffer, count, type, &status); },
                   [&] { return MPI_File_write(file_, buffer, count, type, &status); })
            : call([&] { return MPI_File_read_at(file_, start, buffer, count, type, &status); },
                   [&] { return MPI_File_read(file_, buffer, count, type, &status); });
  } else if (way == 1) {
    error =
        writing
            ? call(
                  [&] { return MPI_File_write_at_all(file_, start, buffer, count, type, &status); },
                  [&] { return MPI_File_write_all(file_, buffer, count, type, &status); })
            : call([&] { return MPI_File_read_at_all(file_, start, buffer, count, type, &status); },
                   [&] { return MPI_File_read_all(file_, buffer, count, type, &status); });
  } else if (way == 2 && !together) {
    error =
        writing
            ? call([&] { return MPI_File_iwrite_at(file_, start, buffer, count, type, &request); },
                   [&] { return MPI_File_iwrite(file_, buffer, count, type, &request); })
            : call([&] { return MPI_File_iread_at(file_, start, buffer, count, type, &request); },
                   [&] { return MPI_File_iread(file_, buffer, count, type, &request); });
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): `call` has made it
    MPI_Wait(&request, &status);
  } else if (way == 2) {
    error = writing
                ? call(
                      [&] {
                        return MPI_File_iwrite_at_all(file_, start, buffer, count, type, &request);
                      },
                      [&] { return MPI_File_iwrite_all(file_, buffer, count, type, &request); })
                : call(
                      [&] {
                        return MPI_File_iread_at_all(file_, start, buffer, count, type, &request);
                      },
                      [&] { return MPI_File_iread_all(file_, buffer, count, type, &request); });
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): `call` has made it
    MPI_Wait(&request, &status);
  } else if (writing) {
    error = call([&] { return MPI_File_write_at_all_begin(file_, start, buffer, count, type); },
                 [&] { return MPI_File_write_all_begin(file_, buffer, count, type); });
    call([&] { return MPI_File_write_at_all_end(file_, buffer, &status); },
         [&] { return MPI_File_write_all_end(file_, buffer, &status); });
  } else {
    error = call([&] { return MPI_File_read_at_all_begin(file_, start, buffer, count, type); },
                 [&] { return MPI_File_read_all_begin(file_, buffer, count, type); });
    call([&] { return MPI_File_read_at_all_end(file_, buffer, &status); },
         [&] { return MPI_File_read_all_end(file_, buffer, &status); });
  }
  note("class %d", error_class(error));
}

}  // namespace histories
