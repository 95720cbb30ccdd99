// The path that a call names relative to an open folder, as the cache's hooks take it.
#pragma once

#include <fcntl.h>

#include <climits>
#include <cstdio>

namespace nvio {

class PathAt {
 public:
  PathAt(int folder, const char* path) : path_(path) {
    if (folder == AT_FDCWD || path == nullptr || *path == '/') return;
    const int length = std::snprintf(joined_, sizeof joined_, "/proc/self/fd/%d/%s", folder, path);
    if (length < static_cast<int>(sizeof joined_)) path_ = joined_;
  }
  PathAt(const PathAt&) = delete;
  PathAt& operator=(const PathAt&) = delete;

  const char* c_str() const { return path_; }

 private:
  const char* path_;
  char joined_[PATH_MAX];
};

}  // namespace nvio
