// Some threads of a process that fetch MiBs of its files while the program goes on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace nvio {

class CachedFile;
class Session;

// Threads may call everything at the same time.
class Ahead {
 public:
  Ahead() = default;
  ~Ahead() { stop(); }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  // Has the MiB fetched, if the node has a place for that. Threads are made as they are needed. No
  // lock of a bucket may be held.
  void ask(Session& session, CachedFile& file, std::uint64_t group);
  // Forgets what was asked for of this file and waits for what is under way. Nobody may ask
  // meanwhile.
  void finish(const CachedFile& file);
  // The same for all files; the threads end.
  void stop();

 private:
  struct Request {
    CachedFile* file;
    std::uint64_t group;
  };
  void begin_thread();
  void run();

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Request> asked_;
  std::vector<Request> under_way_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
};

}  // namespace nvio
