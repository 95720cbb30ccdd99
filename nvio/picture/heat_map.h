// Which bytes of its files a job read and wrote, and when: a map of time and offset for each file,
// as one SVG without scripts.
#pragma once

#include <string>

#include "../predict/job_trace.h"

namespace nvio {

// Of any job no more than some hundred KB: the files that move most, in cells of a fixed number.
std::string heat_map(const JobTrace& job, const std::string& title);

}  // namespace nvio
