#include "record.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "../predict/job_trace.h"
#include "launch.h"

namespace nvio {

namespace fs = std::filesystem;

int record(const RecordOptions& options) {
  const std::string library = find_library();
  if (library.empty()) return 1;
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error || !fs::is_empty(options.folder, error)) {
    std::fprintf(
        stderr, "nvio record: %s %s; choose another by --output\n", options.folder.c_str(),
        error ? ("cannot be made: " + error.message()).c_str() : "is there already, and not empty");
    return 2;
  }
  setenv("NVIO_RECORD", fs::absolute(options.folder).c_str(), 1);
  const auto start = std::chrono::steady_clock::now();
  const int status = launch(library, options.command);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  std::ofstream file(options.folder + "/" + kJobFile);
  file << job_json(options.command, passed.count(), status);
  file.close();
  if (!file) {
    std::fprintf(stderr, "nvio record: cannot write %s/%s: is the disk full?\n",
                 options.folder.c_str(), kJobFile);
    return status != 0 ? status : 1;
  }
  allow_signals();  // all is written, and a job may have many traces
  // A rank that could not write its trace ends as if it had, and only a prediction would tell.
  const std::string problem = status == 0 ? why_not_whole(options.folder) : "";
  if (!problem.empty()) {
    std::fprintf(stderr, "nvio record: nothing to predict from: %s\n", problem.c_str());
    return 1;
  }
  std::fprintf(
      stderr,
      "nvio record: %.2f s; next: nvio calibrate DIR, where DIR is the folder of the job's "
      "files, then nvio predict %s\n",
      passed.count(), options.folder.c_str());
  return status;
}

}  // namespace nvio
