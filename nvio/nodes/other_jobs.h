// Jobs of this user on this node, for a process that takes part in none of them: a program that a
// rank started, a child that it forked, a rank that has not called MPI-IO yet, or cannot join.
#pragma once

#include <sys/stat.h>

#include "../settings/settings.h"

namespace nvio {

// Whether other processes of this process's own job have its store here, or may.
bool others_have_store(const Settings& settings);

// Whether a store of its own job is here, of living processes or of dead ones. In doubt, one is.
bool has_store(const Settings& settings);

// Before a file is used past the jobs that cache it: they write it back, and cache it no more. A
// file that goes away anyway is left alone. Returns 0 or an errno value.
int step_aside_elsewhere(const Settings& settings, const char* path);

// The same by a descriptor itself.
int step_aside_elsewhere(const Settings& settings, int fd);

// The same for a descriptor that was just opened, which is too late to fail: what goes wrong is
// told.
void opened_outside(const Settings& settings, int fd);

// Before a program is told of the file's size and times: what such a job has written of it is in
// it.
void write_back_elsewhere(const Settings& settings, struct stat* status);

}  // namespace nvio
