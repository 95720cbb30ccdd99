// Threads that do what may wait for the file system, and a descriptor that tells when it is done.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nvio {

class Workers {
 public:
  explicit Workers(unsigned threads);
  // Waits for what is queued.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // `work` runs on some thread; then `done` is kept for the caller of `collect`.
  void add(std::function<void()> work, std::function<void()> done);
  // Readable while something is done.
  int descriptor() const { return event_; }
  // Calls what was kept, on the calling thread.
  void collect();

 private:
  void run();

  struct Task {
    std::function<void()> work, done;
  };
  int event_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> waiting_;
  std::vector<std::function<void()>> done_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nvio
