// Which descriptors are copies of each other, as dup makes them: the kernel, too, takes a file for
// closed when the last one is.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

namespace nvio {

// Threads may call everything at the same time.
class Openings {
 public:
  // `fd` is no copy of another one.
  void begin(int fd) {
    const std::lock_guard guard(mutex_);
    copies_[fd] = std::make_shared<int>(fd);
  }

  // `to` is a copy of `from`, from here on.
  void copy(int from, int to) {
    const std::lock_guard guard(mutex_);
    const auto found = copies_.find(from);
    if (found != copies_.end()) copies_.insert_or_assign(to, std::shared_ptr(found->second));
  }

  // `fd` goes; whether it was the last of its opening.
  bool end(int fd) {
    const std::lock_guard guard(mutex_);
    const auto node = copies_.extract(fd);
    return node.empty() || node.mapped().use_count() == 1;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int, std::shared_ptr<int>> copies_;
};

}  // namespace nvio
