#include "file_state.h"

namespace nvio {

FileState state_of(CachedFile& file) {
  const FileEntry& entry = file.entry();
  if (entry.left.load() != 0) return FileState::left;
  if (entry.aside.load() != 0) return FileState::leaving;
  switch (entry.mode.load(std::memory_order_acquire)) {
    case kPassive:
      return FileState::plain;
    case kDraining:
      return FileState::draining;
    case kActive:
      return FileState::active;
    default:
      return FileState::leaving;
  }
}

Shares shares_of(CachedFile& file, Spread spread, std::uint32_t nodes) {
  FileEntry& entry = file.entry();
  const std::uint64_t unit = unit_of(entry.stripe);
  std::uint64_t known = 0;
  const std::uint64_t part =
      spread == Spread::parts ? equal_part(entry.size.load(), unit, nodes) : 0;
  return {entry.part.compare_exchange_strong(known, 1 + part) ? part : known - 1, unit};
}

}  // namespace nvio
