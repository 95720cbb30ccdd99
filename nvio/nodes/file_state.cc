#include "file_state.h"

#include "placement.h"

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

std::uint64_t part_of(CachedFile& file, Spread spread, std::uint32_t nodes) {
  FileEntry& entry = file.entry();
  std::uint64_t known = 0;
  const std::uint64_t part = spread == Spread::parts ? equal_part(entry.size.load(), nodes) : 0;
  return entry.part.compare_exchange_strong(known, 1 + part) ? part : known - 1;
}

}  // namespace nvio
