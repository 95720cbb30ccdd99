// From a recorded job and a calibration to a run time with the cache, and to what to do about it.
#pragma once

#include <string>
#include <vector>

#include "calibration.h"
#include "job_trace.h"
#include "replay.h"

namespace nvio {

enum class Verdict : std::uint8_t { use, indifferent, avoid };

struct Prediction {
  std::string problem;  // a sentence, when there is no ground for one
  double plain = 0;     // seconds of the recorded command
  double plain_io = 0;  // of them, from its first MPI-IO call to the end of its last one
  Range cached;         // seconds of the command with the cache
  Range cached_io;
  Verdict verdict = Verdict::indifferent;
  std::vector<std::string> hints;    // settings that are worth it, as NAME=VALUE
  std::string advice;                // a sentence that says why
  Replayed details;                  // the replay of the median case
  std::vector<std::string> assumed;  // what the recorded run's log does not tell
};

// `settings`: as the job would have them.
Prediction predict(const JobTrace& job, const Calibration& calibration, const Settings& settings);

std::string as_text(const Prediction& prediction);
std::string as_json(const Prediction& prediction);

}  // namespace nvio
