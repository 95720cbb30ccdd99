// What a manager does for the processes of other nodes: this node's part of the job's files, by the
// same cache that the node's own processes use. Knows messages, but no connections.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "../cache/session.h"
#include "../nodes/wire.h"
#include "../nodes/write_queue.h"

namespace nvio {

// A file that the manager has open for others.
struct ServedFile {
  CachedFile* cached = nullptr;
  std::string path;          // by which it was first asked for
  std::uint64_t device = 0;  // here: another host numbers its file systems otherwise
  std::uint64_t inode = 0;
  std::uint32_t users = 0;  // numbers that connections hold on it
  std::uint32_t access = 0;
  bool is_home = false;  // its size is decided here, and nobody else's word counts
};

// Writes that asked for it (kQueue) are taken into one queue of the manager, and done in order by
// one thread, as in the paper. What is asked of the same bytes meanwhile, by anybody, comes behind
// them; what went wrong the asker's next sync, write-back or close tells. `asker`: a number of who
// asks, the same for all of a process.
class Service {
 public:
  explicit Service(Session& session);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service();

  // Serves a transfer if that needs no waiting: what a single thread may do for all. Threads: one.
  bool serve_at_once(const Request& request, ServedFile& file, std::uint64_t asker,
                     std::span<const std::byte> payload, Reply& reply, std::span<std::byte> room);
  // Serves anything, waiting for the file system where it must. Threads: any. `file` is null for
  // `open`, which sets it; `close` clears it. What is to follow the reply stands in `answer`.
  Reply serve(const Request& request, ServedFile*& file, std::uint64_t asker,
              std::span<const std::byte> payload, std::vector<std::byte>& answer);
  // Gives one user's number back, when what he had queued is done. Returns 0 or the errno value of
  // a write that failed.
  int release(ServedFile* file, std::uint64_t asker);

 private:
  // Takes a write to be done later; false where there is no room and nobody to wait for it.
  bool take(const Request& request, ServedFile& file, std::uint64_t asker,
            std::span<const std::byte> payload, bool waits, Reply& reply);
  // Of those taken, what the request must come behind is done.
  void wait_for_taken(const Request& request, const ServedFile& file);
  // A write that is asked for or was taken; bytes done, or -1.
  static ssize_t write(const ServedFile& file, std::uint16_t flags, std::uint64_t offset,
                       std::span<const std::byte> bytes);
  int open(const Request& request, std::span<const std::byte> payload, ServedFile*& file,
           Reply& reply);
  // A transfer of runs; 0 or an errno value.
  static int serve_runs(const Request& request, ServedFile& file,
                        std::span<const std::byte> payload, std::vector<std::byte>& answer);

  Session& session_;
  std::mutex mutex_;  // guards the list and its users
  std::list<ServedFile> files_;
  WriteQueue taken_;
};

}  // namespace nvio
