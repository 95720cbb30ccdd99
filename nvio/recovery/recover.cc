#include "recover.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <span>
#include <utility>

#include "../store/slots.h"
#include "../store/store_folder.h"
#include "../system/real.h"
#include "target.h"
#include "unwritten.h"

namespace nvio {
namespace {

// Calls visit(offset, data, length) for each run of bytes of a file that is only in the working
// memory, or there in its last state.
template <typename Visit>
void each_latest(Segment& segment, std::uint32_t file, Visit&& visit) {
  const std::uint64_t size = segment.file(file).size.load();
  for (std::uint32_t i = 0; i < segment.used_groups(); ++i) {
    if (segment.file_of(i) != file) continue;
    const Group& group = segment.group(i);
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

RecoveredFile& line_of(RecoverReport& report, const std::string& path) {
  const auto known = std::find_if(report.files.begin(), report.files.end(),
                                  [&](const RecoveredFile& file) { return file.path == path; });
  if (known != report.files.end()) return *known;
  report.files.push_back({});
  report.files.back().path = path;
  return report.files.back();
}

void write_latest(Segment& segment, const RecoverOptions& options, RecoverReport& report,
                  std::vector<NewFile>& made) {
  for (std::uint32_t index = 0; index < segment.used_files(); ++index) {
    const FileEntry& entry = segment.file(index);
    const std::uint32_t deleted = entry.deleted.load();
    if (entry.used.load() == 0 || deleted == kDiscarded) continue;
    const FileIdentity file{entry.device, entry.inode, entry.opened_path(), deleted == kExpected,
                            entry.mark};
    std::uint64_t bytes = 0;
    each_latest(segment, index,
                [&](std::uint64_t, const char*, std::size_t length) { bytes += length; });
    if (bytes == 0) continue;
    RecoveredFile& line = line_of(report, file.path);
    if (!line.problem.empty()) {
      line.latest_bytes += bytes;
      continue;
    }
    Target target(file, options, line, made);
    if (target.is_moot()) continue;
    line.latest_bytes += bytes;
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
    if (entry.used.load() == 0 || entry.deleted.load() != kKept) continue;
    const std::uint64_t bytes = unwritten_of(segment, index).unsynced;
    if (bytes == 0) continue;
    RecoveredFile& line = line_of(report, entry.opened_path());
    line.left_out = bytes;
    if (line.syncs == 0 && entry.synced.load() == 0 && line.problem.empty()) {
      line.problem = "no sync of it was completed: nvio recover --latest " + report.store +
                     " writes what there is";
    }
  }
}

// A log of the store, read piece by piece.
class LogFile {
 public:
  LogFile(const StoreFolder& folder, const std::string& name)
      : path_(folder.path_of(name)),
        fd_(folder.open(name, O_RDONLY)),
        reader_(size_of(fd_), [this](std::uint64_t offset, std::span<std::byte> room) {
          return read_fully(fd_, room.data(), room.size(), static_cast<off_t>(offset)) ==
                 static_cast<ssize_t>(room.size());
        }) {}
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  ~LogFile() {
    if (fd_ >= 0) real().close(fd_);
  }

  // Empty `why`: nothing is wrong.
  ParsedLog parse(std::string& why) {
    if (fd_ < 0) {
      why = failed("cannot open " + path_);
      return {};
    }
    ParsedLog log = reader_.parse();
    if (reader_.failed()) {
      why = failed("cannot read " + path_);
    } else if (!log.usable && !log.never_started) {
      why = log.why;
    }
    return log;
  }
  bool replay(const ParsedLog& log, Target& target) {
    return reader_.replay(log, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
      target.write(offset, bytes.data(), bytes.size());
    });
  }

 private:
  static std::uint64_t size_of(int fd) {
    struct stat status {};
    return fd >= 0 && real().fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_size)
                                                     : 0;
  }

  std::string path_;
  int fd_;
  LogReader reader_;
};

RecoveredFile recover_log(const StoreFolder& folder, const std::string& name,
                          const RecoverOptions& options, std::vector<NewFile>& made) {
  RecoveredFile file;
  file.path = folder.path_of(name);
  LogFile records(folder, name);
  const ParsedLog log = records.parse(file.problem);
  file.unreadable = !file.problem.empty();
  if (!log.usable || !file.problem.empty()) return file;
  file.path = log.file.path;
  file.was_flushing = log.state == LogState::flushing;
  file.unfinished = log.unfinished;
  if (log.syncs == 0) return file;
  Target target(log.file, options, file, made);
  if (target.is_moot()) return file;
  file.syncs = log.syncs;
  file.synced_bytes = log.bytes;
  if (!records.replay(log, target) && file.problem.empty()) {
    file.problem = failed("cannot read " + folder.path_of(name));
    file.unreadable = true;
  }
  target.finish(log.file_size);
  return file;
}

// A dead job's store, held from the first look to its removal: nobody joins it in between.
struct DeadStore {
  explicit DeadStore(const std::string& path) : folder(path) { report.store = path; }

  StoreFolder folder;
  LifeLock alone;
  std::vector<std::string> logs;
  RecoverReport report;
};

// Whether it may be recovered; else its report says why not.
bool seize(DeadStore& store, const RecoverOptions& options) {
  const StoreFolder& folder = store.folder;
  std::string& problem = store.report.problem;
  // Whose it is comes first: what another user's folder holds may not be looked at.
  if (folder.is_open() && !folder.become_owner(problem)) return false;
  problem = folder.why_no_store();
  if (!problem.empty()) return false;
  if (!options.locked) {
    store.alone = LifeLock(folder.open("alive", O_RDWR));
    if (!store.alone.is_open() && errno != ENOENT) {
      problem = failed("cannot open " + folder.path_of("alive"));
    } else if (store.alone.is_open() && (!store.alone.take_alone() || store.alone.is_removed())) {
      problem = "the job of " + store.report.store + " is still running; its store is left alone";
    }
  }
  const auto logs = folder.logs();
  if (problem.empty() && !logs) problem = failed("cannot list " + store.report.store);
  if (problem.empty()) store.logs = *logs;
  return problem.empty();
}

void rebuild(DeadStore& store, const RecoverOptions& options, std::vector<NewFile>& made) {
  const StoreFolder& folder = store.folder;
  RecoverReport& report = store.report;
  for (const std::string& name : store.logs) {
    report.files.push_back(recover_log(folder, name, options, made));
  }
  if (!folder.has("segment")) return;
  std::string why;
  const auto segment = Segment::open_existing(folder, why);
  if (segment == nullptr && folder.is_from_before_the_boot("segment")) {
    report.remarks.push_back(why);
  } else if (segment == nullptr) {
    // Whatever no sync has covered is in there alone.
    RecoveredFile& line = line_of(report, folder.path_of("segment"));
    line.problem = why;
    line.unreadable = true;
  } else if (boot_identifier() != segment->header().boot_id) {
    report.remarks.push_back(
        "the machine restarted since: what was written after the last sync is not trusted");
  } else if (options.latest) {
    write_latest(*segment, options, report, made);
  } else {
    leave_out_latest(*segment, report);
  }
}

void remove(DeadStore& store) {
  for (const std::string& name : store.logs) store.folder.remove(name);
  // A log that came back would be replayed over what is written from now on.
  store.folder.persist();
  for (const char* name : kStoreFiles) store.folder.remove(name);
  store.report.removed = rmdir(store.report.store.c_str()) == 0;
}

// Whether nothing would be gained by trying again later: what is there is all that there will be.
bool is_all_to_be_had(const std::list<DeadStore>& stores) {
  return std::all_of(stores.begin(), stores.end(), [](const DeadStore& store) {
    const auto& files = store.report.files;
    return store.report.problem.empty() &&
           std::all_of(files.begin(), files.end(), [](const RecoveredFile& file) {
             return file.problem.empty() || file.unreadable;
           });
  });
}

// What was made elsewhere gets its name, or goes, to be made anew.
void finish(std::list<DeadStore>& stores, const std::vector<NewFile>& made) {
  std::string why = "it was removed from there again, since not all could be saved";
  std::size_t named = 0;
  if (is_all_to_be_had(stores)) {
    while (named < made.size() && take_name(made[named])) ++named;
    if (named == made.size()) return;
    why = failed("cannot rename " + made[named].partial + " to " + made[named].path);
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    real().unlink((i < named ? made[i].path : made[i].partial).c_str());
  }
  for (DeadStore& store : stores) {
    for (RecoveredFile& file : store.report.files) {
      const bool is_gone =
          std::ranges::any_of(made, [&](const NewFile& one) { return one.path == file.instead; });
      if (file.problem.empty() && is_gone) file.problem = why;
    }
  }
}

}  // namespace

bool RecoverReport::good() const {
  return problem.empty() && std::all_of(files.begin(), files.end(), [](const RecoveredFile& file) {
           return file.problem.empty();
         });
}

ParsedLog parse_log(const StoreFolder& folder, const std::string& name, std::string& why) {
  return LogFile(folder, name).parse(why);
}

std::string why_no_store(const std::string& path) { return StoreFolder(path).why_no_store(); }

std::vector<RecoverReport> recover_job(const std::vector<std::string>& folders,
                                       const RecoverOptions& options) {
  std::list<DeadStore> stores;
  std::vector<NewFile> made;
  for (const std::string& folder : folders) {
    DeadStore& store = stores.emplace_back(folder);
    if (seize(store, options)) rebuild(store, options, made);
  }
  finish(stores, made);
  std::vector<RecoverReport> reports;
  const bool all_good = std::all_of(stores.begin(), stores.end(),
                                    [](const DeadStore& store) { return store.report.good(); });
  for (DeadStore& store : stores) {
    const bool is_done = options.to.empty() ? store.report.good() : all_good;
    if (is_done && !options.dry_run && !options.keep) remove(store);
    if (!is_done && store.report.good()) {
      store.report.remarks.push_back("the store " + store.report.store +
                                     " stays, since another of its job could not be rebuilt");
    }
    reports.push_back(std::move(store.report));
  }
  return reports;
}

RecoverReport recover(const std::string& path, const RecoverOptions& options) {
  return recover_job({path}, options).front();
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
  if (const auto segment = Segment::open_existing(folder, why)) {
    const SegmentHeader& header = segment->header();
    text += "  working memory: " + std::to_string(header.slots) + " blocks of 64 KiB, " +
            std::to_string(header.fresh_slot) + " used so far; made in " +
            (boot_identifier() == header.boot_id ? "this" : "an earlier") + " boot\n";
    for (std::uint32_t i = 0; i < segment->used_files(); ++i) {
      const FileEntry& entry = segment->file(i);
      if (entry.used.load() == 0) continue;
      text += "  file " + entry.opened_path() + ": " + std::to_string(entry.size.load()) +
              " bytes, " + std::to_string(entry.blocks.load()) + " blocks cached, " +
              std::to_string(entry.references) + " processes\n";
    }
  } else {
    text += "  " + why + "\n";
  }
  for (const std::string& name : folder.logs().value_or(std::vector<std::string>{})) {
    text += "  log " + name + ": ";
    std::string problem;
    const ParsedLog log = LogFile(folder, name).parse(problem);
    if (!log.usable || !problem.empty()) {
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
