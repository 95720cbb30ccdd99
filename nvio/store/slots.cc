#include "slots.h"

namespace nvio {
namespace {

std::uint16_t page_range(std::uint64_t first, std::uint64_t stop) {
  if (first >= stop) return 0;
  return static_cast<std::uint16_t>(((1U << (stop - first)) - 1U) << first);
}

// But for these pages.
void forget_written(Segment& segment, std::uint32_t slot, std::uint16_t but) {
  Bits dirty = segment.dirty(slot);
  each_page_run(static_cast<std::uint16_t>(~but),
                [&](std::uint64_t from, std::uint64_t to) { dirty.clear(from, to); });
}

}  // namespace

std::uint16_t pages_touched(std::uint64_t begin, std::uint64_t end) {
  return page_range(begin / kPageSize, (end + kPageSize - 1) / kPageSize);
}

std::uint16_t pages_covered(std::uint64_t begin, std::uint64_t end) {
  return page_range((begin + kPageSize - 1) / kPageSize, end / kPageSize);
}

bool is_valid(Segment& segment, std::uint32_t slot, std::uint64_t begin, std::uint64_t end) {
  const std::uint16_t touched = pages_touched(begin, end);
  if ((segment.slot(slot).valid_pages & touched) == touched) return true;
  return segment.valid(slot).all(begin, end);
}

void mark_valid(Segment& segment, std::uint32_t slot, std::uint64_t begin, std::uint64_t end) {
  Slot& state = segment.slot(slot);
  Bits valid = segment.valid(slot);
  valid.set(begin, end);
  state.valid_pages |= pages_covered(begin, end);
  for (const std::uint64_t edge : {begin, end - 1}) {
    const std::uint64_t page = edge / kPageSize;
    const auto bit = static_cast<std::uint16_t>(1U << page);
    if ((state.valid_pages & bit) == 0 && valid.all(page * kPageSize, (page + 1) * kPageSize)) {
      state.valid_pages |= bit;
    }
  }
}

void mark_dirty(Segment& segment, std::uint32_t slot, std::uint64_t begin, std::uint64_t end) {
  mark_valid(segment, slot, begin, end);
  segment.dirty(slot).set(begin, end);
  Slot& state = segment.slot(slot);
  const std::uint16_t touched = pages_touched(begin, end);
  state.dirty_pages |= touched;
  state.unlogged_pages |= touched;
}

void mark_rewritten(Segment& segment, std::uint32_t slot, std::uint64_t begin, std::uint64_t end) {
  mark_valid(segment, slot, begin, end);
  Slot& state = segment.slot(slot);
  state.unlogged_pages |= static_cast<std::uint16_t>(pages_touched(begin, end) &
                                                     (state.logged_pages | state.logging_pages));
}

void mark_clean(Segment& segment, std::uint32_t slot) {
  Slot& state = segment.slot(slot);
  state.dirty_pages = 0;
  const auto recorded = static_cast<std::uint16_t>(state.logged_pages | state.logging_pages);
  state.unlogged_pages &= recorded;
  forget_written(segment, slot, recorded);
}

void mark_written(Segment& segment, std::uint32_t slot) {
  Slot& state = segment.slot(slot);
  state.logging_pages |= static_cast<std::uint16_t>(state.dirty_pages & ~state.logged_pages);
  mark_clean(segment, slot);
}

void mark_lacking(Segment& segment, std::uint32_t slot) {
  Slot& state = segment.slot(slot);
  const auto known = static_cast<std::uint16_t>(state.logged_pages | state.logging_pages);
  each_page_run(known, [&](std::uint64_t from, std::uint64_t to) {
    segment.dirty(slot).each_run(
        from, to, [&](std::size_t a, std::size_t b) { state.dirty_pages |= pages_touched(a, b); });
  });
}

void mark_unlogged(Segment& segment, std::uint32_t slot) {
  Slot& state = segment.slot(slot);
  state.logged_pages = state.logging_pages = 0;
  state.unlogged_pages = state.dirty_pages;
  forget_written(segment, slot, state.dirty_pages);
}

void forget_clean(Segment& segment, std::uint32_t slot) {
  Bits valid = segment.valid(slot);
  const Bits dirty = segment.dirty(slot);
  for (std::size_t at = dirty.next_clear(0, kBlockSize); at < kBlockSize;) {
    const std::size_t stop = dirty.next_set(at, kBlockSize);
    valid.clear(at, stop);
    at = dirty.next_clear(stop, kBlockSize);
  }
  std::uint16_t whole = 0;
  for (std::uint64_t page = 0; page < kBlockSize / kPageSize; ++page) {
    if (valid.all(page * kPageSize, (page + 1) * kPageSize))
      whole |= static_cast<std::uint16_t>(1U << page);
  }
  segment.slot(slot).valid_pages = whole;
}

void cut(Segment& segment, std::uint32_t slot, std::uint64_t begin) {
  segment.valid(slot).clear(begin, kBlockSize);
  segment.dirty(slot).clear(begin, kBlockSize);
  Slot& state = segment.slot(slot);
  std::uint16_t dropped = pages_touched(begin, kBlockSize);
  state.valid_pages &= static_cast<std::uint16_t>(~dropped);
  const std::uint64_t page = begin / kPageSize;
  if (segment.dirty(slot).any(page * kPageSize, begin)) {
    dropped &= static_cast<std::uint16_t>(~(1U << page));
  }
  state.dirty_pages &= static_cast<std::uint16_t>(~dropped);
  state.unlogged_pages &=
      static_cast<std::uint16_t>(state.dirty_pages | state.logged_pages | state.logging_pages);
}

}  // namespace nvio
