#pragma once

#include <sys/resource.h>

#include <csignal>

namespace nvio {

// While it lives no file can be written beyond so many bytes, as if its file system were full.
class FullFileSystem {
 public:
  explicit FullFileSystem(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullFileSystem() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullFileSystem(const FullFileSystem&) = delete;
  FullFileSystem& operator=(const FullFileSystem&) = delete;

 private:
  rlimit before_{};
};

}  // namespace nvio
