// Some threads of a process that write beside their caller, so that a file system far away is not
// waited for once a piece.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nvio {

class Writers {
 public:
  Writers() = default;
  ~Writers();
  Writers(const Writers&) = delete;
  Writers& operator=(const Writers&) = delete;

  // Calls write(i) for each i below `count`, some of them at the same time; each returns 0 or an
  // errno value. Returns 0, or one of those errors, once all calls have returned. Threads are made
  // at the first use; where another thread uses them, or none can be had, the caller does it alone.
  int all(std::size_t count, const std::function<int(std::size_t)>& write);

 private:
  void begin();
  void run();
  void take_part(std::unique_lock<std::mutex>& lock);

  const pid_t process_ = getpid();
  std::mutex in_use_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  const std::function<int(std::size_t)>* write_ = nullptr;  // none: nothing to do
  std::size_t count_ = 0;
  std::size_t next_ = 0;
  std::size_t under_way_ = 0;
  int error_ = 0;
  bool stopping_ = false;
};

}  // namespace nvio
