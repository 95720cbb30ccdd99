// A job as a Darshan log tells it, in the form in which nvio's own traces are replayed.
#pragma once

#include "../predict/job_trace.h"
#include "log.h"

namespace nvio {

// Where the log lacks what a prediction needs, `problem` says so; the calls are there all the same,
// for a picture. What was assumed for want of better stands in `assumed`.
JobTrace job_of(DarshanLog log);

// Reads a log by means of pydarshan, in a process of its own: one that is damaged may bring down
// the library.
JobTrace read_darshan(const std::string& path);

}  // namespace nvio
