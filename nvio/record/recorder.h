// What `nvio record` has the preloaded library do: nothing is cached, every call goes on to the
// C library, and is noted with its times. Knows no MPI.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../cache/view.h"
#include "../interpose/contract.h"
#include "trace_writer.h"

namespace nvio {

class Recorder {
 public:
  // Null unless NVIO_RECORD names a folder. Never destroyed.
  static Recorder* the();

  void attach(const FromLoader& loader) { tracked_ = loader.tracked; }
  const PosixHooks& hooks() const;

  // ns since the trace's start.
  std::uint64_t now() const;
  // A call from `start` till now. Any thread.
  void note(TraceKind kind, std::uint16_t file, std::uint64_t start, std::uint64_t offset = 0,
            std::uint64_t length = 0, std::uint32_t ranks = 0);
  void note(const TraceCall& call);

  // Descriptors that this thread opens from now on are remembered, until `track_opened`, which
  // records those of the file at `path` and returns one of them.
  struct Tracked {
    int number = -1;  // of the file; -1: it cannot be recorded
    int descriptor = -1;
  };
  void remember_opened();
  Tracked track_opened(const std::string& path);
  // Of a view, which is noted at its first call; -1: it has too many runs.
  int number_of(const View& view);
  // The process leaves MPI.
  void finish();

  void opened(int fd);
  void closing(int fd);
  void duplicated(int from, int to);
  // Of a tracked descriptor.
  std::uint16_t file_of(int fd) const { return files_[fd].load(std::memory_order_relaxed); }

 private:
  explicit Recorder(const std::string& folder);
  int number_of(int fd, const struct stat& status, const std::string& path);
  bool is_borrowed() const;

  class Holding;

  std::mutex mutex_;  // guards all but files_
  std::uint64_t start_;
  TraceWriter writer_;
  pid_t process_;
  bool finished_ = false;
  std::vector<TraceFile> known_;
  std::deque<std::pair<std::uint32_t, View>> views_;  // the latest, with their numbers
  std::uint32_t next_view_ = 0;
  std::uint8_t* tracked_ = nullptr;
  std::atomic<std::uint16_t>* files_;  // one a descriptor
};

}  // namespace nvio
