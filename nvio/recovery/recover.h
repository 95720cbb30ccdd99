// Rebuilding files from what a job left in its store's folder (cache/session.h has its layout).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../log/reader.h"

namespace nvio {

struct RecoverOptions {
  // Also write what was written after the last sync, if the machine has not restarted since: all
  // that plain MPI-IO would have left in the file system when its processes died.
  bool latest = false;
  bool dry_run = false;  // say what would be done, change nothing
  bool keep = false;     // leave the store's folder as it is afterwards
  bool force = false;  // write where it is in doubt whether a file is still the one that was cached
  // Where what cannot go to its file is written: TO/PATH, holes where the store has nothing. Empty:
  // nowhere.
  std::string to;
  bool locked = false;  // the caller holds the lock that excludes running processes of the job
};

// What was done to one file.
struct RecoveredFile {
  std::string path;
  std::string instead;             // where it was written, not being the file of this path
  std::uint64_t syncs = 0;         // completed syncs that were replayed
  std::uint64_t synced_bytes = 0;  // payload of their records
  std::uint64_t latest_bytes = 0;  // of the working memory, with `latest`
  std::uint64_t left_out = 0;      // of it, without: written after the last sync
  std::uint64_t unfinished = 0;    // whole records of a sync that never ended, left out too
  bool was_flushing = false;       // a write-back was under way when the job ended
  std::string problem;             // a sentence when the file could not be rebuilt
  bool unreadable = false;         // since the store cannot be read: nor can it be later
};

struct RecoverReport {
  std::string store;    // its folder
  std::string problem;  // a sentence when nothing could be done at all
  std::vector<RecoveredFile> files;
  std::vector<std::string> remarks;
  bool removed = false;  // the folder is gone: all of it is in the files
  bool good() const;
};

// Rebuilds every file of the store at `folder`. May be run again at any time, also after it was
// killed itself: it only ever writes the same bytes to the same places.
RecoverReport recover(const std::string& folder, const RecoverOptions& options);

// The same for the stores that the nodes of one job left. Where they write elsewhere (`to`) to new
// files of which each has a part, all stores stay until all parts are there.
std::vector<RecoverReport> recover_job(const std::vector<std::string>& folders,
                                       const RecoverOptions& options);

// The report for people, a line a file. `planned`: in the words of a dry run.
std::string describe(const RecoverReport& report, bool planned);

class StoreFolder;
// What a log of the store holds; a sentence in `why` where it cannot be read or is none.
ParsedLog parse_log(const StoreFolder& folder, const std::string& name, std::string& why);

// Why there is no store at a folder, in a sentence; empty if there is one.
std::string why_no_store(const std::string& folder);

// One paragraph a file of the store, for people; touches nothing.
std::string inspect(const std::string& folder);

}  // namespace nvio
