// Keeps two runs that make one output apart, each of which would take the other's files beside it,
// and both from files of others there.
#pragma once

#include <optional>
#include <string>

#include "doomed_file.h"

namespace walks {

// Held while a run makes `output`, by a lock on OUTPUT.lock, which goes with it. Where the file
// system locks nothing, or the file cannot be made, nothing is kept apart.
class OutputLock {
 public:
  // Throws std::runtime_error if another run holds it, or if a file that walks did not make has a
  // name that the run needs.
  explicit OutputLock(const std::string& output);
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;
  ~OutputLock();

 private:
  int fd_ = -1;
  std::optional<DoomedFile> file_;
};

}  // namespace walks
