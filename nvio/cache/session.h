// A process's part in the job's cache on its node: the mapped segment, the files it has open, and
// the folder where all of it lies.
//
//   STORE/nvio-UID-SESSION/        mode 0700, owned by the job's user
//     alive                        every process shares its lock as long as it lives (life_lock.h)
//     segment                      segment.h
//     N.redo                       log/format.h, one a file that was synced
#pragma once

#include <sys/stat.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../medium/medium.h"
#include "../medium/slow_memory.h"
#include "../settings/settings.h"
#include "../store/life_lock.h"
#include "../store/segment.h"
#include "admission.h"
#include "counters.h"
#include "writers.h"

namespace nvio {

class CachedFile;

class Session {
 public:
  // Joins the job's session on this node, or starts it; the nodes that `settings` tells must be
  // right (nodes/placement.h). On failure returns null and a sentence: the caller then leaves all
  // I/O to the MPI.
  static std::unique_ptr<Session> join(const Settings& settings, std::string& why);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Segment& segment() { return *segment_; }
  const Settings& settings() const { return settings_; }
  Counters& counters() { return counters_; }
  Ledger& ledger() { return ledger_; }
  // Told of every access to a block's bytes, under the lock that guards them.
  const SlowMemory& memory() const { return memory_; }
  Writers& writers() { return writers_; }
  std::uint32_t nodes() const { return settings_.nodes; }
  const std::string& folder() const { return folder_; }
  // A sentence for the user about how the session began; mostly empty.
  const std::string& remark() const { return remark_; }

  // The file behind an open descriptor, cached from now on; null when it cannot be (not a regular
  // file, table full, no descriptor left for our own use). `path` must be absolute. Each call must
  // be matched by `release`. Once the table was full it takes no other file: who was refused goes
  // to the file itself, and would not see what others cached of it later.
  CachedFile* acquire(int fd, const std::string& path, const FileSettings& settings);
  // A later opening may want more to be durable, and never less: the first one decides the rest.
  void raise(FileEntry& entry, const FileSettings& settings);
  bool has_overflowed() { return segment_->header().overflowed.load() != 0; }
  // The same if any process of the job on this node has the file open already.
  CachedFile* acquire_if_open(int fd, const struct stat& status);
  // The same if this process has it open; needs no descriptor.
  CachedFile* acquire_if_open_here(const struct stat& status);
  // Gives one handle back; the last one in the job on this node empties the cache of the file, the
  // others write nothing. Returns 0 or the errno value of a write-back that failed; what could not
  // be written is there again when the file is opened again.
  int release(CachedFile* file);

  // The file's size as the job sees it, if it is in the table.
  void correct_size(struct stat* status);

  // Ends the caching of every file, so that all that was written is in the files and what is
  // written from now on goes there at once; the last process to do so takes the store away. The
  // program goes on meanwhile.
  void flush_for_good();

  // Once it has stepped aside for all that this process has open: leaves the store to the job's
  // other processes, or takes it away after the last one. The object stays as it is, for calls that
  // are still under way.
  void give_up_store();

  // In a forked child: closes its copy of the lock by which the store is known to be in use.
  void abandon();

  // Makes room for at least one block, writing back what must be. No lock may be held.
  bool make_room();

  std::unique_ptr<Medium> open_log(const FileEntry& entry, std::string& why);
  void delete_log(const FileEntry& entry);

 private:
  Session();
  bool drop_slot(std::uint32_t slot);
  bool drop_if_deleted(CachedFile& file);
  void remove_folder();
  std::uint32_t find_open(int fd, const struct stat& status);
  CachedFile* acquire_entry(std::uint32_t index, int fd, const struct stat& status);
  bool leave_unserved(std::uint32_t index);
  std::string log_path(const FileEntry& entry) const;
  void leave();
  bool leave_to_others();

  Settings settings_;
  std::string folder_;
  std::string remark_;
  bool has_said_unserved_ = false;
  LifeLock alive_;
  std::unique_ptr<Segment> segment_;
  Counters counters_;
  Ledger ledger_;
  SlowMemory memory_;
  Writers writers_;
  std::mutex mutex_;  // guards the tables below
  std::array<std::unique_ptr<CachedFile>, kMaxFiles> files_;
  std::array<std::uint32_t, kMaxFiles> handles_{};
  // Files that nobody has open, whose last close could not write them. As long as a descriptor is
  // there, no other file can get the inode's number, by which the table knows them.
  std::vector<std::unique_ptr<CachedFile>> unwritten_;
};

}  // namespace nvio
