// Whether a trace and a calibration are a ground for a prediction.
#pragma once

#include <string>

#include "calibration.h"
#include "job_trace.h"

namespace nvio {

// Ranks that move bytes.
std::uint32_t active_ranks(const JobTrace& job);

// What the file system that a folder is on was mounted from, as mount_source has it; empty where
// nobody can tell.
std::string file_system_of(const std::string& folder);

// Sentences that say what speaks against it, or nothing: that the job cannot be replayed with a
// store in this folder; and, where the cache did something in the replay, that what this costs was
// calibrated in another state.
std::string objection(const JobTrace& job, const Calibration& calibration,
                      const std::string& store);
std::string objection_to_costs(const JobTrace& job, const Calibration& calibration);

}  // namespace nvio
