// The process's one session and the descriptors it serves: what the loader's POSIX calls and the
// MPI entries both stand on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../cache/cached_file.h"
#include "../entry/contract.h"

namespace nvio {

class Process {
 public:
  // Never destroyed: calls may come in until the process is gone.
  static Process& the();

  void attach(const FromLoader& loader);
  const PosixHooks& hooks() const;
  const Settings& settings() const { return settings_; }

  // The session, joined at first use; null when that failed (which was then said, once).
  Session* session();
  // The session if it was joined; for calls that must not start one.
  Session* joined() const { return joined_.load(std::memory_order_acquire); }
  // Ends the session if no file is open any more; afterwards all I/O is the MPI's.
  void leave();
  void flush_for_good();

  // Descriptors that this thread opens from now on are remembered, until `track_opened`.
  void remember_opened();
  void forget_opened();
  // Of the remembered descriptors, serves those of the file at `path`; returns the file (with a
  // handle that the caller must release), or null when it is not cached. `descriptors` are those.
  CachedFile* track_opened(const std::string& path, const FileSettings& settings,
                           std::vector<int>& descriptors);
  // After a handle's close: Open MPI leaves descriptors open, which would keep the file cached.
  void forget_descriptors(const std::vector<int>& descriptors, const CachedFile* file);

  void opened(int fd);
  int closing(int fd);
  void duplicated(int from, int to);
  CachedFile* file_of(int fd) const;

 private:
  Process();
  void track(int fd, CachedFile* file);
  void track_earlier(const struct stat& wanted, const CachedFile* file);

  Settings settings_;
  std::unique_ptr<Session> session_;
  std::atomic<Session*> joined_{nullptr};
  bool refused_ = false;
  std::mutex mutex_;  // guards joining and leaving
  std::uint8_t* tracked_ = nullptr;
  // One entry a descriptor, of zeroed pages that are only touched where descriptors are.
  std::atomic<CachedFile*>* files_;
  std::atomic<bool>* left_open_;  // by an MPI after its close: nobody uses them
  std::atomic<int> served_{0};    // descriptors with an entry in files_
};

}  // namespace nvio
