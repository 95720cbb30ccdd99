// A whole job's traces, as `nvio record` left them in a folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../record/trace_reader.h"

namespace nvio {

struct JobFileFacts {
  std::string path;
  std::string file_system;
  std::uint64_t size = 0;  // when it was first opened
};

struct JobTrace {
  std::string problem;               // a sentence, when there is no ground for a prediction
  double seconds = 0;                // of the command, launcher and all
  bool types_only = false;           // of file systems only types are known, or nothing
  std::vector<std::string> assumed;  // sentences: what another tool's log does not tell
  std::vector<JobFileFacts> files;
  std::vector<View> views;  // what calls on a view name in place of ranks
  // A rank's calls, in the order of Trace::calls; `file` counts in `files`, and times from the
  // first call of the job.
  std::vector<std::vector<TraceCall>> ranks;
};

// How a job's folder is named inside: written by record, read by predict.
constexpr const char* kJobFile = "job.json";
std::string job_json(const std::vector<std::string>& command, double seconds, int status);

JobTrace read_job(const std::string& folder);

// Why nothing can be told of what was recorded, whatever the job was: a trace is not whole, or none
// is there. Holds one at a time.
std::string why_not_whole(const std::string& folder);

}  // namespace nvio
