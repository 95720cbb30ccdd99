// The state of a slot's bytes: bitmaps exact to the byte, page masks for speed. The lock of the
// slot's bucket must be held for all of these.
#pragma once

#include <algorithm>
#include <bit>

#include "segment.h"

namespace nvio {

// Bits of the pages that [begin, end) of a block touches; of those it covers wholly.
std::uint16_t pages_touched(std::uint64_t begin, std::uint64_t end);
std::uint16_t pages_covered(std::uint64_t begin, std::uint64_t end);

bool is_valid(Segment& segment, std::uint32_t slot, std::uint64_t begin, std::uint64_t end);
void mark_valid(Segment& segment, std::uint32_t slot, std::uint64_t begin, std::uint64_t end);
// Valid, too, and to be logged by the next sync.
void mark_dirty(Segment& segment, std::uint32_t slot, std::uint64_t begin, std::uint64_t end);
// After a write past the cache: valid, and logged again where the redo log has a record.
void mark_rewritten(Segment& segment, std::uint32_t slot, std::uint64_t begin, std::uint64_t end);
// After a write-back. Pages that have a record in the redo log stay to be logged again, else that
// older record would be replayed over what is in the file now; which of their bytes the program
// wrote stays known for that.
void mark_clean(Segment& segment, std::uint32_t slot);
// The same, by a checkpoint: what was written stays known till it is durable.
void mark_written(Segment& segment, std::uint32_t slot);
// After an fsync that failed: the file may lack all that is known of.
void mark_lacking(Segment& segment, std::uint32_t slot);
// After a checkpoint: the log holds no record any more.
void mark_unlogged(Segment& segment, std::uint32_t slot);
// Calls visit(first, last) for each run of bytes that the pages of a mask make up.
template <typename Visit>
void each_page_run(std::uint16_t pages, Visit&& visit) {
  for (unsigned page = 0; pages >> page != 0;) {
    const auto set = static_cast<unsigned>(std::countr_one(static_cast<unsigned>(pages) >> page));
    if (set != 0) visit(page * kPageSize, (page + set) * kPageSize);
    page += std::max(set, 1U);
  }
}
// Whether the redo log may hold records of this block's bytes.
inline bool has_records(const Slot& slot) { return (slot.logged_pages | slot.logging_pages) != 0; }
// Forgets all that the file has too.
void forget_clean(Segment& segment, std::uint32_t slot);
// Forgets all from `begin` of the block on.
void cut(Segment& segment, std::uint32_t slot, std::uint64_t begin);

}  // namespace nvio
