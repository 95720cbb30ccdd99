// Writes that nobody waits for (`write=async`: of a process; `write=async-manager`: of all that ask
// a manager): copied, queued, and done in order by a thread of their own. Whoever needs some of
// them done waits for those.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace nvio {

struct QueuedWrite {
  std::uint64_t offset = 0;
  std::vector<char> data;
  bool large = false;          // a piece of a write that goes round the cache for its size
  const void* file = nullptr;  // which one, where a queue has those of several
  std::uint64_t owner = 0;     // who is told what went wrong, where several ask
};

class WriteQueue {
 public:
  // Does one write; returns 0 or an errno value.
  using Write = std::function<int(const QueuedWrite&)>;

  // `most`: bytes that may wait, each write's own room included.
  WriteQueue(Write write, std::size_t most);
  // Waits for what is queued.
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // Waits for room. What is longer than all of it waits till it is alone.
  void add(QueuedWrite write);
  // False, and nothing done, where there is no room now, or others wait for it.
  bool try_add(QueuedWrite write);
  // Whether a write that waits, or is under way, touches the range.
  bool overlaps(std::uint64_t offset, std::uint64_t length, const void* file = nullptr);
  // Waits for those that touch it; not for what is added meanwhile.
  void wait_for(std::uint64_t offset, std::uint64_t length, const void* file = nullptr);
  // Waits for all of a file. Returns the owner's first error in it since the last call, which is
  // told only once.
  int drain(const void* file = nullptr, std::uint64_t owner = 0);

 private:
  bool has_room(const QueuedWrite& write) const;
  void put(QueuedWrite write, std::unique_lock<std::mutex>& lock);
  // How many of those that wait must be done till none touches the range.
  std::size_t until(std::uint64_t offset, std::uint64_t length, const void* file) const;
  void note(int error, const QueuedWrite& write);
  void run();

  Write write_;
  std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<QueuedWrite> waiting_;  // the first is under way
  std::size_t bytes_ = 0;
  unsigned wanting_ = 0;                                         // who waits for room
  std::uint64_t done_ = 0;                                       // writes, since the begin
  std::map<std::pair<const void*, std::uint64_t>, int> errors_;  // by file and owner
  int whosoever_ = 0;  // one that could not be noted: told to who asks next
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace nvio
