#include "unwritten.h"

namespace nvio {

Unwritten unwritten_of(Segment& segment, std::uint32_t file) {
  Unwritten found;
  for (std::uint32_t i = 0; i < segment.used_groups(); ++i) {
    if (segment.file_of(i) != file) continue;
    for (const std::uint32_t slot : segment.group(i).slot) {
      if (slot >= segment.used_slots() || segment.slot(slot).dirty_pages == 0) continue;
      const Slot& state = segment.slot(slot);
      const auto unsynced = static_cast<std::uint16_t>(state.unlogged_pages | state.logging_pages);
      for (std::uint64_t page = 0; page < kGroupBlocks; ++page) {
        if ((state.dirty_pages >> page & 1) == 0) continue;  // the file has it
        segment.dirty(slot).each_run(page * kPageSize, (page + 1) * kPageSize,
                                     [&](std::size_t from, std::size_t to) {
                                       found.bytes += to - from;
                                       if ((unsynced >> page & 1) != 0) found.unsynced += to - from;
                                     });
      }
    }
  }
  return found;
}

}  // namespace nvio
