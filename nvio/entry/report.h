// Counts of MPI calls by name, and what NVIO_STATS asks for: a process's own account.
#pragma once

#include <cstddef>

#include "../cache/counters.h"
#include "../settings/settings.h"

namespace nvio {

void count_call(std::size_t index);
// A call that went on to the MPI's own code (whose POSIX calls the cache serves).
void count_passed(std::size_t index);
// The names of the table, for the report; set once by the library of the MPI.
void name_calls(const char* const* names, std::size_t count);
const char* name_of_call(std::size_t index);

// This process is served: `nvio run` may be counting (cli/stats.h).
void report_begin(const Settings& settings);
// What was done: for `nvio run` to sum up, or, where there is none, on standard error.
void report_end(const Settings& settings, const Counters& counters);

}  // namespace nvio
