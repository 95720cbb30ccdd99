#include "left_over.h"

#include <fcntl.h>

#include <algorithm>
#include <cstddef>

#include "../store/segment.h"
#include "../store/store_folder.h"
#include "../system/real.h"
#include "recover.h"

namespace nvio {
namespace {

// For those who wait for the lock meanwhile: once they share it, the store looks like one in use.
void mark_orphaned(const StoreFolder& folder) {
  const int fd = folder.open("segment", O_RDWR);
  if (fd < 0) return;
  const std::uint32_t orphaned = 1;
  write_fully(fd, &orphaned, sizeof orphaned, offsetof(SegmentHeader, orphaned));
  real().close(fd);
}

}  // namespace

bool settle_left_over(const std::string& path, std::uint32_t nodes, std::string& remark,
                      std::string& why) {
  const StoreFolder folder(path);
  bool unwritten = !folder.logs().empty();
  if (folder.has("segment")) {
    std::string unusable;
    const auto segment = Segment::open_existing(folder.open("segment", O_RDONLY),
                                                folder.path_of("segment"), unusable);
    if (segment == nullptr || boot_identifier() != segment->header().boot_id) return true;
    unwritten = unwritten || segment->holds_unwritten();
  }
  if (!unwritten) {
    folder.remove("segment");  // it tells of nothing but processes that are gone
    return true;
  }
  // On several nodes the others' processes may be writing to the files by now.
  if (nodes <= 1) {
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
  why = path + " holds what a killed run left" +
        (nodes <= 1 ? ", and it cannot be written to its files" : "") +
        "; recover it first: nvio recover --latest " + path;
  return false;
}

}  // namespace nvio
