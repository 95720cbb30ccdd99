#include "left_over.h"

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "../settings/launcher.h"
#include "../store/segment.h"
#include "../store/store_folder.h"
#include "../system/real.h"
#include "recover.h"

namespace nvio {
namespace {

// All who come are refused alike: of ranks that went different ways some would miss what others
// cache.
class OrphanMark {
 public:
  explicit OrphanMark(const StoreFolder& folder) : OrphanMark(folder.open("segment", O_RDWR)) {
    is_joinable_ = fd_ >= 0 && Segment::is_joinable(fd_);
  }
  ~OrphanMark() {
    if (fd_ >= 0) real().close(fd_);
  }
  OrphanMark(const OrphanMark&) = delete;
  OrphanMark& operator=(const OrphanMark&) = delete;

  // Takes no memory. False where no segment is there that could refuse anybody.
  bool set() const {
    const std::uint32_t orphaned = 1;
    if (fd_ < 0 || is_removed(fd_)) return false;
    return !is_joinable_ ||
           write_fully(fd_, &orphaned, sizeof orphaned, offsetof(SegmentHeader, orphaned)) >= 0;
  }

 private:
  explicit OrphanMark(int fd) : fd_(fd) {}

  int fd_;
  bool is_joinable_ = false;
};

// In doubt, it has.
bool has_logs(const StoreFolder& folder) {
  const auto logs = folder.logs();
  return !logs || !logs->empty();
}

std::string to_be_recovered(const std::string& path, const std::string& why = "") {
  return path + " holds what a killed run left" + why +
         "; recover it first: nvio recover --latest " + path;
}

// What does not let itself be looked at may hold anything.
std::string unknown(const std::string& why) { return ", and nobody can tell what (" + why + ")"; }

// False where what is left cannot be written to its files; `why` is then to say how that comes.
bool settle(const StoreFolder& folder, const std::string& path, std::uint32_t nodes,
            std::string& remark, std::string& why) {
  bool unwritten = has_logs(folder);
  bool orphaned = false;
  if (folder.has("segment")) {
    std::string unusable;
    const auto segment = Segment::open_existing(folder, unusable);
    if (segment == nullptr) {
      why = unknown(unusable);
      return false;
    }
    if (boot_identifier() != segment->header().boot_id) return true;
    unwritten = unwritten || segment->holds_unwritten();
    orphaned = segment->header().orphaned.load() != 0;
  }
  if (!unwritten) {
    folder.remove("segment");  // it tells of nothing but processes that are gone
    return true;
  }
  // On several nodes the others' processes may be writing to the files by now.
  if (nodes <= 1 && !orphaned) {
    RecoverOptions options;
    options.latest = true;
    options.locked = true;
    // Had before the store goes: then nothing is left that could refuse anybody.
    std::string written = "what a killed run left in " + path + " was written to its files first";
    const RecoverReport report = recover(path, options);
    if (report.good()) {
      const bool any = std::any_of(report.files.begin(), report.files.end(), [](const auto& file) {
        return file.synced_bytes != 0 || file.latest_bytes != 0;
      });
      if (any) remark = std::move(written);
      return true;
    }
  }
  if (nodes <= 1) why = ", and it cannot be written to its files";
  return false;
}

}  // namespace

bool settle_left_over(const std::string& path, std::uint32_t nodes, std::string& remark,
                      std::string& why) {
  const StoreFolder folder(path);
  const OrphanMark orphaned(folder);
  std::string without_memory = to_be_recovered(path, ", and there is no memory to look at it");
  try {
    std::string how;
    if (settle(folder, path, nodes, remark, how)) return true;
    orphaned.set();
    why = to_be_recovered(path, how);
  } catch (const std::bad_alloc&) {
    // Unmarked, it would be written over what comes next: the caller must not go on.
    if (!orphaned.set()) throw;
    why = std::move(without_memory);
  }
  return false;
}

bool is_nothing_left_beside(const std::string& path, std::string& why) {
  namespace fs = std::filesystem;
  const std::string own = fs::path(path).filename();
  const std::string session = without_job(own);
  const std::string job = own.substr(0, own.rfind(".node"));
  if (job == session) return true;  // its jobs come one after the other, and to the same store
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path(), absent)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(job) || without_job(name) != session) continue;
    const StoreFolder folder(entry.path());
    if (!folder.is_own() || folder.lock() != LifeLock::Kind::none) continue;
    std::string unusable;
    const auto segment = Segment::open_existing(folder, unusable);
    const bool is_unknown = segment == nullptr && folder.has("segment");
    const bool is_left = has_logs(folder) || (segment != nullptr && segment->holds_unwritten());
    if (!is_unknown && !is_left) continue;
    why = to_be_recovered(entry.path(), is_unknown ? unknown(unusable) : "");
    return false;
  }
  return true;
}

}  // namespace nvio
