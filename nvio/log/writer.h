// Appends to a file's redo log. Pure but for the medium; the caller holds the file's lock, and
// publishes the position only after a commit: what a process that died meanwhile had appended is
// then written over, and its leftovers are told apart by the chain of checksums.
// After an error it takes no more records, and returns that error.
#pragma once

#include <string>
#include <vector>

#include "../medium/medium.h"
#include "format.h"

namespace nvio {

// Where the log ends; shared by all processes that write it, kept beside the file's lock.
struct LogPosition {
  std::uint64_t epoch = 0;  // 0: the log does not exist yet
  std::uint64_t tail = 0;
  std::uint64_t sequence = 0;
  std::uint64_t reserved = 0;
  std::uint32_t chain = 0;  // checksum of the last record: the next one's starts from it
};

// The file that a log is for.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string path;  // absolute
  bool deleted = false;
  FileMark mark{};
};

class LogWriter {
 public:
  // `medium` must outlive the writer; `position` is updated as records are written.
  LogWriter(Medium& medium, LogPosition& position) : medium_(medium), position_(position) {}

  // Starts the first epoch, or the next: all records so far are void from here on. The new
  // superblock is durable when this returns 0 (else an errno value).
  int start(const FileIdentity& file);
  // Changes the state that the superblock tells, within the present epoch.
  int mark(LogState state, const FileIdentity& file);

  int extent(std::uint64_t offset, const void* data, std::size_t length);
  // Ends a sync: all records since the last commit count once this returned 0.
  int commit(std::uint64_t file_size);

 private:
  int append(RecordType type, std::uint64_t offset, const void* data, std::size_t length);
  int write_out();
  Superblock superblock(LogState state, const FileIdentity& file) const;
  int place(const Superblock& block, std::uint64_t copy);

  Medium& medium_;
  LogPosition& position_;
  std::vector<char> pending_;  // records not yet handed to the medium
  std::uint64_t pending_at_ = 0;
  int error_ = 0;
};

}  // namespace nvio
