// The descriptors that a thread opens while an MPI opens a file: one of them is the file's.
#pragma once

#include <vector>

namespace nvio {

class Remembered {
 public:
  void begin() {
    is_under_way_ = true;
    descriptors_.clear();
  }
  const std::vector<int>& end() {
    is_under_way_ = false;
    return descriptors_;
  }
  bool is_under_way() const { return is_under_way_; }
  void add(int fd) { descriptors_.push_back(fd); }

 private:
  bool is_under_way_ = false;
  std::vector<int> descriptors_;
};

}  // namespace nvio
