// Writes that the program does not wait for (`write=async`): copied, queued, and done in order by a
// thread of their own. Whoever needs them done drains the queue first.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nvio {

class WriteQueue {
 public:
  // Does one write; returns 0 or an errno value.
  using Write = std::function<int(std::uint64_t offset, const char* data, std::size_t length)>;

  // `most`: bytes that may wait.
  WriteQueue(Write write, std::size_t most);
  // Waits for what is queued.
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // Takes a copy, waiting for room; false (and nothing done) when it is larger than the room.
  bool add(std::uint64_t offset, const void* data, std::size_t length);
  // Whether a write that waits, or is under way, touches the range.
  bool overlaps(std::uint64_t offset, std::size_t length);
  // Waits till all is done. Returns the first error since the last call, which is told only once.
  int drain();

 private:
  struct Waiting {
    std::uint64_t offset;
    std::vector<char> data;
  };
  void run();

  Write write_;
  std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;  // the first is under way
  std::size_t bytes_ = 0;
  int error_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace nvio
