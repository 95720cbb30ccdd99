// Counts of MPI calls by name, and the report that NVIO_STATS=1 asks for.
#pragma once

#include <cstddef>

#include "../cache/counters.h"

namespace nvio {

void count_call(std::size_t index);
// A call that went on to the MPI's own code (whose POSIX calls the cache serves).
void count_passed(std::size_t index);
// The names of the table, for the report; set once by the library of the MPI.
void name_calls(const char* const* names, std::size_t count);
const char* name_of_call(std::size_t index);

// One block of lines on standard error.
void print_report(const Counters& counters);

}  // namespace nvio
