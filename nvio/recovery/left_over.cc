#include "left_over.h"

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "../settings/launcher.h"
#include "../store/segment.h"
#include "../store/store_folder.h"
#include "../system/real.h"
#include "recover.h"

namespace nvio {
namespace {

// All who come are refused alike: of ranks that went different ways some would miss what others
// cache.
void mark_orphaned(const StoreFolder& folder) {
  const int fd = folder.open("segment", O_RDWR);
  if (fd < 0) return;
  const std::uint32_t orphaned = 1;
  if (Segment::is_joinable(fd)) {
    write_fully(fd, &orphaned, sizeof orphaned, offsetof(SegmentHeader, orphaned));
  }
  real().close(fd);
}

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

}  // namespace

bool settle_left_over(const std::string& path, std::uint32_t nodes, std::string& remark,
                      std::string& why) {
  const StoreFolder folder(path);
  bool unwritten = has_logs(folder);
  bool orphaned = false;
  if (folder.has("segment")) {
    std::string unusable;
    const auto segment = Segment::open_existing(folder, unusable);
    if (segment == nullptr) {
      mark_orphaned(folder);
      why = to_be_recovered(path, unknown(unusable));
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
    const RecoverReport report = recover(path, options);
    if (report.good()) {
      const bool any = std::any_of(report.files.begin(), report.files.end(), [](const auto& file) {
        return file.synced_bytes != 0 || file.latest_bytes != 0;
      });
      if (any) remark = "what a killed run left in " + path + " was written to its files first";
      return true;
    }
  }
  mark_orphaned(folder);
  why = to_be_recovered(path, nodes <= 1 ? ", and it cannot be written to its files" : "");
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
