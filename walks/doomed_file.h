// A file that must not outlive the run, however the run ends (kill -9 excepted: the next run of
// the same command replaces it).
#pragma once

#include <string>

namespace walks {

// Removes the file when destroyed, and on SIGINT, SIGTERM and SIGHUP unless they are ignored. One
// process (rank 0) does it for all; in the others `armed` is false and this does nothing.
class DoomedFile {
 public:
  DoomedFile(std::string path, bool armed);
  DoomedFile(const DoomedFile&) = delete;
  DoomedFile& operator=(const DoomedFile&) = delete;
  ~DoomedFile();

  [[nodiscard]] const std::string& path() const { return path_; }

  // Gives the finished file its name, replacing what had it; it is no longer doomed.
  // Throws std::runtime_error.
  void keep_as(const std::string& name);

 private:
  std::string path_;
  int slot_ = -1;
};

}  // namespace walks
