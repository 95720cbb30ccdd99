// Whether a trace and a calibration are a ground for a prediction.
#pragma once

#include <string>

#include "calibration.h"
#include "job_trace.h"

namespace nvio {

// Ranks that move bytes.
std::uint32_t active_ranks(const JobTrace& job);

// A sentence that says what speaks against it, or nothing.
std::string objection(const JobTrace& job, const Calibration& calibration);

}  // namespace nvio
