#include "recover.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "../cache/slots.h"
#include "../posix/real.h"
#include "store_folder.h"
#include "target.h"
#include "unwritten.h"

namespace nvio {
namespace {

// A lock on the store's folder that running processes of the job exclude.
class StoreLock {
 public:
  explicit StoreLock(const StoreFolder& folder) : fd_(folder.open("alive", O_RDWR)) {
    held_ = fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0;
    busy_ = fd_ >= 0 && !held_;
  }
  StoreLock(const StoreLock&) = delete;
  StoreLock& operator=(const StoreLock&) = delete;
  ~StoreLock() {
    if (fd_ >= 0) real().close(fd_);
  }
  bool busy() const { return busy_; }

 private:
  int fd_;
  bool held_ = false;
  bool busy_ = false;
};

// Calls visit(offset, data, length) for each run of bytes of a file that is only in the working
// memory, or there in its last state.
template <typename Visit>
void each_latest(Segment& segment, std::uint32_t file, Visit&& visit) {
  const std::uint64_t size = segment.file(file).size.load();
  for (std::uint32_t i = 0; i < segment.used_groups(); ++i) {
    const Group& group = segment.group(i);
    if (group.file != file) continue;
    for (std::uint64_t place = 0; place < kGroupBlocks; ++place) {
      const std::uint32_t slot = group.slot[place];
      if (slot >= segment.used_slots()) continue;
      const Slot& state = segment.slot(slot);
      // A group that was taken and not yet filled in names slots of others.
      if (state.group.load() != i || state.place != place) continue;
      // The log, just replayed, may be older than what was written back of its pages.
      const auto pages =
          static_cast<std::uint16_t>(state.dirty_pages | state.logged_pages | state.logging_pages);
      const std::uint64_t base = group.index * kGroupSize + place * kBlockSize;
      each_page_run(pages, [&](std::uint64_t first, std::uint64_t last) {
        segment.dirty(slot).each_run(first, last, [&](std::size_t from, std::size_t to) {
          const std::uint64_t offset = base + from;
          if (offset >= size) return;
          visit(offset, segment.block(slot) + from,
                std::min<std::uint64_t>(to - from, size - offset));
        });
      });
    }
  }
}

void write_latest(Segment& segment, const RecoverOptions& options, RecoverReport& report,
                  std::vector<std::string>& made) {
  for (std::uint32_t index = 0; index < segment.used_files(); ++index) {
    const FileEntry& entry = segment.file(index);
    if (entry.used.load() == 0 || entry.deleted.load() != 0) continue;
    const FileIdentity file{entry.device, entry.inode,
                            std::string(entry.path, strnlen(entry.path, kMaxPath)), false,
                            entry.mark};
    std::uint64_t bytes = 0;
    each_latest(segment, index,
                [&](std::uint64_t, const char*, std::size_t length) { bytes += length; });
    if (bytes == 0) continue;
    auto line = std::find_if(report.files.begin(), report.files.end(),
                             [&](const RecoveredFile& known) { return known.path == file.path; });
    if (line == report.files.end()) {
      report.files.push_back({});
      line = report.files.end() - 1;
      line->path = file.path;
    }
    line->latest_bytes += bytes;
    if (!line->problem.empty()) continue;
    Target target(file, options, *line, made);
    each_latest(segment, index, [&](std::uint64_t offset, const char* data, std::size_t length) {
      target.write(offset, data, length);
    });
    target.finish(0);
  }
}

// What was written after the last sync is nobody's promise; where there was no sync at all, it is
// all that the store has of the file, and stays.
void leave_out_latest(Segment& segment, RecoverReport& report) {
  for (std::uint32_t index = 0; index < segment.used_files(); ++index) {
    const FileEntry& entry = segment.file(index);
    if (entry.used.load() == 0 || entry.deleted.load() != 0) continue;
    const std::uint64_t bytes = unwritten_of(segment, index).unsynced;
    if (bytes == 0) continue;
    const std::string path(entry.path, strnlen(entry.path, kMaxPath));
    auto line = std::find_if(report.files.begin(), report.files.end(),
                             [&](const RecoveredFile& known) { return known.path == path; });
    if (line == report.files.end()) {
      report.files.push_back({});
      line = report.files.end() - 1;
      line->path = path;
    }
    line->left_out = bytes;
    if (line->syncs == 0 && line->problem.empty()) {
      line->problem = "no sync of it was completed: nvio recover --latest " + report.store +
                      " writes what there is";
    }
  }
}

RecoveredFile recover_log(const StoreFolder& folder, const std::string& name,
                          const RecoverOptions& options, std::vector<std::string>& made) {
  RecoveredFile file;
  file.path = folder.path_of(name);
  const std::vector<std::byte> bytes = folder.read(name, file.problem);
  if (!file.problem.empty()) return file;
  const ParsedLog log = read_log(bytes);
  if (!log.usable) {
    if (!log.never_started) file.problem = log.why;
    return file;
  }
  file.path = log.file.path;
  file.syncs = log.syncs;
  file.synced_bytes = log.bytes;
  file.was_flushing = log.state == LogState::flushing;
  file.unfinished = log.unfinished;
  if (log.syncs == 0 || log.file.deleted) return file;
  Target target(log.file, options, file, made);
  for (const RedoStep& step : log.steps) {
    target.write(step.offset, step.data.data(), step.data.size());
  }
  target.finish(log.file_size);
  return file;
}

}  // namespace

bool RecoverReport::good() const {
  return problem.empty() && std::all_of(files.begin(), files.end(), [](const RecoveredFile& file) {
           return file.problem.empty();
         });
}

std::string why_no_store(const std::string& path) { return StoreFolder(path).why_no_store(); }

RecoverReport recover(const std::string& path, const RecoverOptions& options) {
  RecoverReport report;
  report.store = path;
  const StoreFolder folder(path);
  // Whose it is comes first: what another user's folder holds may not be looked at.
  if (folder.is_open() && !folder.become_owner(report.problem)) return report;
  report.problem = folder.why_no_store();
  if (!report.problem.empty()) return report;
  std::optional<StoreLock> lock;
  if (!options.locked) lock.emplace(folder);
  if (lock && lock->busy()) {
    report.problem = "the job of " + path + " is still running; its store is left alone";
    return report;
  }
  const std::vector<std::string> logs = folder.logs();
  std::vector<std::string> made;
  for (const std::string& name : logs) {
    report.files.push_back(recover_log(folder, name, options, made));
  }

  if (folder.has("segment")) {
    std::string why;
    const auto segment =
        Segment::open_existing(folder.open("segment", O_RDONLY), folder.path_of("segment"), why);
    if (segment == nullptr) {
      report.remarks.push_back(why);
    } else if (boot_identifier() != segment->header().boot_id) {
      report.remarks.push_back(
          "the machine restarted since: what was written after the last sync is not trusted");
    } else if (options.latest) {
      write_latest(*segment, options, report, made);
    } else {
      leave_out_latest(*segment, report);
    }
  }
  if (!report.good() || options.dry_run || options.keep) return report;
  for (const std::string& name : logs) folder.remove(name);
  for (const char* name : kStoreFiles) folder.remove(name);
  report.removed = rmdir(path.c_str()) == 0;
  return report;
}

std::string describe(const RecoverReport& report, bool planned) {
  std::string text;
  for (const RecoveredFile& file : report.files) {
    const bool refused = !file.problem.empty();
    text += file.path + ": ";
    if (refused) text += "NOT rebuilt: " + file.problem + "; not replayed: ";
    if (!refused) text += planned ? "would replay " : "replayed ";
    text += std::to_string(file.syncs) + " syncs, " + std::to_string(file.synced_bytes) + " bytes";
    if (file.latest_bytes != 0) {
      text += "; and " + std::to_string(file.latest_bytes) + " bytes written after the last sync";
    }
    if (file.left_out != 0) {
      text += "; left out: " + std::to_string(file.left_out) + " bytes written after the last sync";
    }
    if (file.unfinished != 0) {
      text +=
          "; left out: " + std::to_string(file.unfinished) + " records of a sync that did not end";
    }
    if (file.was_flushing) text += "; a write-back was under way";
    if (!refused && !file.instead.empty())
      text += "; into " + file.instead + ", the file is left alone";
    text += "\n";
  }
  for (const std::string& remark : report.remarks) text += "note: " + remark + "\n";
  if (report.files.empty()) text += "nothing was left to rebuild\n";
  if (!report.good()) {
    text +=
        "the store " + report.store +
        " stays until every file could be rebuilt: then run nvio recover again (--to FOLDER: what "
        "has no file to go to is written there)\n";
  }
  return text;
}

std::string inspect(const std::string& path) {
  const StoreFolder folder(path);
  std::string text = "store " + path + "\n";
  std::string why;
  if (const auto segment = Segment::open_existing(folder.open("segment", O_RDONLY),
                                                  folder.path_of("segment"), why)) {
    const SegmentHeader& header = segment->header();
    text += "  working memory: " + std::to_string(header.slots) + " blocks of 64 KiB, " +
            std::to_string(header.fresh_slot) + " used so far; made in " +
            (boot_identifier() == header.boot_id ? "this" : "an earlier") + " boot\n";
    for (std::uint32_t i = 0; i < segment->used_files(); ++i) {
      const FileEntry& entry = segment->file(i);
      if (entry.used.load() == 0) continue;
      text += "  file " + std::string(entry.path, strnlen(entry.path, kMaxPath)) + ": " +
              std::to_string(entry.size.load()) + " bytes, " + std::to_string(entry.blocks.load()) +
              " blocks cached, " + std::to_string(entry.references) + " processes\n";
    }
  } else {
    text += "  " + why + "\n";
  }
  for (const std::string& name : folder.logs()) {
    text += "  log " + name + ": ";
    std::string problem;
    const std::vector<std::byte> bytes = folder.read(name, problem);
    const ParsedLog log = problem.empty() ? read_log(bytes) : ParsedLog{};
    if (!log.usable) {
      text += (problem.empty() ? log.why : problem) + "\n";
      continue;
    }
    text += log.file.path + ", epoch " + std::to_string(log.epoch) + ", " +
            std::to_string(log.syncs) + " syncs, " + std::to_string(log.bytes) + " bytes, " +
            std::to_string(log.unfinished) + " records of an unfinished sync" +
            (log.state == LogState::flushing ? ", a write-back was under way" : "") +
            (log.file.deleted ? ", file deleted by the job" : "") + "\n";
  }
  return text;
}

}  // namespace nvio
