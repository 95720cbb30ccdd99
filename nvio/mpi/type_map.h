// Where the bytes of an MPI datatype lie, as the MPI tells of how it was made.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <optional>

#include "../cache/view.h"

namespace nvio {

// Nothing where the type has more than `most` runs, or was made in a way that is not known here.
// The type need not be committed.
std::optional<TypeMap> type_map_of(MPI_Datatype datatype, std::size_t most);

// The size of a predefined type whose elements lie side by side, in bytes; 0 for any other type.
MPI_Offset plain_size(MPI_Datatype datatype);

// MPI_FLOAT_INT and its like hold two elements: their count cannot be set in a status by ours.
bool is_pair(const char* name);

}  // namespace nvio
