#include "type_map.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "functions.h"

namespace nvio {
namespace {

using Run = TypeMap::Run;

// How many numbers and types a constructor was called with.
struct Envelope {
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = MPI_UNDEFINED;
};

// MPICH 4 ends the program that asks by the old function about a type of large counts.
Envelope envelope_of(MPI_Datatype datatype) {
  const MpiFunctions& mpi = mpi_functions();
  Envelope made;
  if (mpi.type_get_envelope_c != nullptr) {
    MPI_Count integers = 0;
    MPI_Count addresses = 0;
    MPI_Count counts = 0;
    MPI_Count types = 0;
    if (mpi.type_get_envelope_c(datatype, &integers, &addresses, &counts, &types, &made.combiner) !=
            MPI_SUCCESS ||
        counts != 0) {
      made.combiner = MPI_UNDEFINED;
    }
    made.integers = static_cast<int>(integers);
    made.addresses = static_cast<int>(addresses);
    made.types = static_cast<int>(types);
  } else if (mpi.type_get_envelope(datatype, &made.integers, &made.addresses, &made.types,
                                   &made.combiner) != MPI_SUCCESS) {
    made.combiner = MPI_UNDEFINED;
  }
  return made;
}

// Types that are nobody's to free.
bool is_predefined(int combiner) {
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
         combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

// What a constructor was called with. Its types are the caller's of MPI_Type_get_contents.
class Contents {
 public:
  Contents(MPI_Datatype datatype, const Envelope& made)
      : integers(static_cast<std::size_t>(made.integers)),
        addresses(static_cast<std::size_t>(made.addresses)),
        types(static_cast<std::size_t>(made.types)) {
    is_told_ = mpi_functions().type_get_contents(datatype, made.integers, made.addresses,
                                                 made.types, integers.data(), addresses.data(),
                                                 types.data()) == MPI_SUCCESS;
    if (!is_told_) types.clear();
  }
  ~Contents() {
    for (MPI_Datatype& type : types) {
      if (!is_predefined(envelope_of(type).combiner)) mpi_functions().type_free(&type);
    }
  }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;
  bool is_told() const { return is_told_; }

  std::vector<int> integers;
  std::vector<MPI_Aint> addresses;
  std::vector<MPI_Datatype> types;

 private:
  bool is_told_ = false;
};

// Elements of one dimension of an array.
struct Segment {
  std::int64_t start, length;
};
struct Dimension {
  std::int64_t size = 0;
  std::vector<Segment> segments;
};

// Nothing where they are more than `most`, and lie apart.
std::optional<std::vector<Segment>> distributed(std::int64_t size, int kind, int argument,
                                                int processes, int place, std::size_t most) {
  if (kind == MPI_DISTRIBUTE_NONE || processes == 1) return {{{0, size}}};
  const bool cyclic = kind == MPI_DISTRIBUTE_CYCLIC;
  const std::int64_t usual = cyclic ? 1 : (size + processes - 1) / processes;
  const std::int64_t block = argument == MPI_DISTRIBUTE_DFLT_DARG ? usual : argument;
  std::vector<Segment> segments;
  const std::int64_t step = cyclic ? block * processes : size;
  for (std::int64_t at = block * place; at < size; at += step) {
    if (segments.size() == most) return std::nullopt;
    segments.push_back({at, std::min(block, size - at)});
    if (!cyclic) break;
  }
  return segments;
}

class Decoder {
 public:
  explicit Decoder(std::size_t most) : most_(most) {}

  bool decode(MPI_Datatype datatype, TypeMap& map);

 private:
  bool decode_made(const Contents& with, int combiner, TypeMap& map);
  bool decode_predefined(MPI_Datatype datatype, TypeMap& map) const;
  bool add(TypeMap& map, __int128 offset, __int128 length);
  // `count` of the child side by side, from `at` on.
  bool place(TypeMap& map, const TypeMap& child, __int128 at, std::int64_t count);
  bool place_array(TypeMap& map, const TypeMap& child, const std::vector<Dimension>& slowest_first,
                   std::size_t from, __int128 index);

  // Runs that join cost time all the same.
  static constexpr std::size_t kStepsARun = 16;
  std::size_t most_;
  std::size_t steps_ = 0;
};

bool Decoder::add(TypeMap& map, __int128 offset, __int128 length) {
  constexpr __int128 kFar = __int128{1} << 60;
  if (offset < -kFar || offset > kFar || length > kFar || ++steps_ > kStepsARun * most_) {
    return false;
  }
  if (!map.runs.empty() && map.runs.back().offset + map.runs.back().length == offset) {
    map.runs.back().length += static_cast<std::int64_t>(length);
    return map.runs.back().length <= kFar;
  }
  if (map.runs.size() == most_) return false;
  map.runs.push_back({static_cast<std::int64_t>(offset), static_cast<std::int64_t>(length)});
  return true;
}

bool Decoder::place(TypeMap& map, const TypeMap& child, __int128 at, std::int64_t count) {
  if (child.runs.empty() || count <= 0) return true;
  if (child.runs.size() == 1 && child.runs[0].length == child.extent) {
    return add(map, at + child.runs[0].offset, __int128{child.extent} * count);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    for (const Run& run : child.runs) {
      if (!add(map, at + __int128{child.extent} * i + run.offset, run.length)) return false;
    }
  }
  return true;
}

bool Decoder::place_array(TypeMap& map, const TypeMap& child,
                          const std::vector<Dimension>& slowest_first, std::size_t from,
                          __int128 index) {
  const Dimension& dimension = slowest_first[from];
  index *= dimension.size;
  for (const Segment& segment : dimension.segments) {
    if (from + 1 == slowest_first.size()) {
      if (!place(map, child, (index + segment.start) * child.extent, segment.length)) return false;
      continue;
    }
    for (std::int64_t i = 0; i < segment.length; ++i) {
      if (++steps_ > kStepsARun * most_ ||
          !place_array(map, child, slowest_first, from + 1, index + segment.start + i)) {
        return false;
      }
    }
  }
  return true;
}

bool Decoder::decode_predefined(MPI_Datatype datatype, TypeMap& map) const {
  const MpiFunctions& mpi = mpi_functions();
  int size = 0;
  int length = 0;
  char name[MPI_MAX_OBJECT_NAME] = {};
  if (mpi.type_size(datatype, &size) != MPI_SUCCESS || size < 0 ||
      mpi.type_get_name(datatype, name, &length) != MPI_SUCCESS) {
    return false;
  }
  if (size == 0) return true;
  if (std::strcmp(name, "MPI_SHORT_INT") == 0) {
    struct ShortInt {
      short first;
      int second;
    };
    map.runs = {{0, sizeof(short)}, {offsetof(ShortInt, second), sizeof(int)}};
    return true;
  }
  // Of the other pairs the padding comes last.
  map.runs = {{0, size}};
  return size == map.extent || is_pair(name);
}

bool Decoder::decode(MPI_Datatype datatype, TypeMap& map) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  const Envelope made = envelope_of(datatype);
  if (made.combiner == MPI_UNDEFINED ||
      mpi_functions().type_get_extent(datatype, &lower, &extent) != MPI_SUCCESS) {
    return false;
  }
  map.extent = extent;
  if (is_predefined(made.combiner)) return decode_predefined(datatype, map);
  const Contents with(datatype, made);
  return with.is_told() && decode_made(with, made.combiner, map);
}

bool Decoder::decode_made(const Contents& with, int combiner, TypeMap& map) {
  const std::vector<int>& n = with.integers;
  const std::vector<MPI_Aint>& a = with.addresses;
  if (combiner == MPI_COMBINER_STRUCT) {
    for (std::size_t i = 0; i < with.types.size(); ++i) {
      TypeMap child;
      if (!decode(with.types[i], child) || !place(map, child, a[i], n[i + 1])) return false;
    }
    return true;
  }
  TypeMap child;
  if (with.types.size() != 1 || !decode(with.types[0], child)) return false;
  const __int128 extent = child.extent;
  const auto blocks = [&](std::size_t count, auto&& length, auto&& offset) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!place(map, child, offset(i), length(i))) return false;
    }
    return true;
  };
  const std::size_t count = n.empty() ? 0 : static_cast<std::size_t>(n[0]);
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      return place(map, child, 0, 1);
    case MPI_COMBINER_CONTIGUOUS:
      return place(map, child, 0, n[0]);
    case MPI_COMBINER_VECTOR:
      return blocks(
          count, [&](std::size_t) { return n[1]; },
          [&](std::size_t i) { return extent * n[2] * static_cast<std::int64_t>(i); });
    case MPI_COMBINER_HVECTOR:
      return blocks(
          count, [&](std::size_t) { return n[1]; },
          [&](std::size_t i) { return __int128{a[0]} * static_cast<std::int64_t>(i); });
    case MPI_COMBINER_INDEXED:
      return blocks(
          count, [&](std::size_t i) { return n[1 + i]; },
          [&](std::size_t i) { return extent * n[1 + count + i]; });
    case MPI_COMBINER_HINDEXED:
      return blocks(
          count, [&](std::size_t i) { return n[1 + i]; },
          [&](std::size_t i) { return __int128{a[i]}; });
    case MPI_COMBINER_INDEXED_BLOCK:
      return blocks(
          count, [&](std::size_t) { return n[1]; },
          [&](std::size_t i) { return extent * n[2 + i]; });
    case MPI_COMBINER_HINDEXED_BLOCK:
      return blocks(
          count, [&](std::size_t) { return n[1]; }, [&](std::size_t i) { return __int128{a[i]}; });
    case MPI_COMBINER_SUBARRAY: {
      std::vector<Dimension> dimensions(count);
      for (std::size_t i = 0; i < count; ++i) {
        dimensions[i] = {n[1 + i], {{n[1 + 2 * count + i], n[1 + count + i]}}};
      }
      if (n[1 + 3 * count] == MPI_ORDER_FORTRAN) std::reverse(dimensions.begin(), dimensions.end());
      return count == 0 || place_array(map, child, dimensions, 0, 0);
    }
    case MPI_COMBINER_DARRAY: {
      const auto dims = static_cast<std::size_t>(n[2]);
      const int* sizes = &n[3];
      const int* kinds = sizes + dims;
      const int* arguments = kinds + dims;
      const int* grid = arguments + dims;
      // Which part is whose is not defined where a grid has other processes than there are, as
      // MPICH lets it have.
      const auto cells = std::reduce(grid, grid + dims, std::int64_t{1}, std::multiplies<>());
      if (cells != n[0]) return false;
      std::vector<Dimension> dimensions(dims);
      int rank = n[1];
      for (std::size_t i = dims; i-- > 0;) {
        auto segments =
            distributed(sizes[i], kinds[i], arguments[i], grid[i], rank % grid[i], most_);
        if (!segments) return false;
        dimensions[i] = {sizes[i], std::move(*segments)};
        rank /= grid[i];
      }
      if (grid[dims] == MPI_ORDER_FORTRAN) std::reverse(dimensions.begin(), dimensions.end());
      return dims == 0 || place_array(map, child, dimensions, 0, 0);
    }
    default:
      return false;
  }
}

// Without asking the MPI: a question about no type at all, or in MPICH one about large counts by
// the older call, ends the program.
bool is_built_in(MPI_Datatype datatype) {
  if (datatype == mpi_functions().datatype_null) return false;
#ifdef OPEN_MPI
  // Variables of the library, or the program's copies of them; all others lie on the heap.
  Dl_info object{};
  return dladdr(datatype, &object) != 0;
#else
  return static_cast<unsigned>(datatype) >> 30 == 1;  // of a handle's kinds, by MPICH's ABI
#endif
}

}  // namespace

// Only predefined types are remembered: their handles never come to mean anything else.
MPI_Offset plain_size(MPI_Datatype datatype) {
  struct Known {
    MPI_Datatype type{};
    MPI_Offset size = 0;
  };
  static thread_local Known known[8];
  static thread_local unsigned next = 0;
  for (const Known& one : known) {
    if (one.size != 0 && one.type == datatype) return one.size;
  }
  const MpiFunctions& mpi = mpi_functions();
  int size = 0;
  int length = 0;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  char name[MPI_MAX_OBJECT_NAME] = {};
  const bool plain = is_built_in(datatype) && mpi.type_size(datatype, &size) == MPI_SUCCESS &&
                     mpi.type_get_extent(datatype, &lower, &extent) == MPI_SUCCESS && lower == 0 &&
                     size > 0 && extent == size &&
                     mpi.type_get_name(datatype, name, &length) == MPI_SUCCESS &&
                     std::strncmp(name, "MPI_", 4) == 0 && !is_pair(name);
  if (!plain) return 0;
  known[next++ % 8] = {datatype, size};
  return size;
}

bool is_pair(const char* name) {
  const std::size_t length = std::strlen(name);
  if (std::strncmp(name, "MPI_2", 5) == 0) return true;
  if (std::strcmp(name, "MPI_LONG_LONG_INT") == 0) return false;  // MPI_LONG_LONG's name
  return length > 8 && std::strcmp(name + length - 4, "_INT") == 0;
}

std::optional<TypeMap> type_map_of(MPI_Datatype datatype, std::size_t most) {
  TypeMap map;
  if (!Decoder(most).decode(datatype, map)) return std::nullopt;
  return map;
}

}  // namespace nvio
