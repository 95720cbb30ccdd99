// A folder on tmpfs for a store, a file and a socket; gone afterwards, also where this process is
// killed: another one waits for its end.
#pragma once

#include <sys/types.h>

#include <string>

namespace nvio::bench {

class Folder {
 public:
  Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int alive_;  // the end of a pipe, which closes with this process and those that it forked
  pid_t sweeper_;
};

}  // namespace nvio::bench
