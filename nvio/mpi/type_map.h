// Where the bytes of an MPI datatype lie, as the MPI tells of how it was made.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace nvio {

struct TypeMap {
  struct Run {
    std::int64_t offset;  // from the origin of the type
    std::int64_t length;  // never 0
  };
  // In the order of the type map; a run that begins where the one before it ends was joined to it.
  std::vector<Run> runs;
  std::int64_t extent = 0;
  std::int64_t size = 0;
};

// Nothing where the type has more than `most` runs, or was made in a way that is not known here.
// The type need not be committed.
std::optional<TypeMap> type_map_of(MPI_Datatype datatype, std::size_t most);

// MPI_FLOAT_INT and its like hold two elements: their count cannot be set in a status by ours.
bool is_pair(const char* name);

}  // namespace nvio
