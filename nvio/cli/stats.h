// `nvio run --stats`: what the processes of the job tell (entry/report.h), summed up.
#pragma once

#include <string>
#include <vector>

#include "../settings/settings.h"

namespace nvio {

// A folder in which each process that nvio serves leaves a file, for the time of a run.
class Stats {
 public:
  // Makes the folder where all nodes see it, if there is such a place, and tells it to the
  // processes that are started from now on.
  explicit Stats(const Settings& settings);
  Stats(const Stats&) = delete;
  Stats& operator=(const Stats&) = delete;
  ~Stats();

  // After the run: a table of the job on standard error, or why there is none; and, if `json` names
  // a file, all of it there. Returns false when that cannot be written.
  bool tell(const std::vector<std::string>& command, const std::string& json) const;

 private:
  std::string folder_;
};

}  // namespace nvio
