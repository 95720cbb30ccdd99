// What is read to be changed and written back as a whole. The MPI holds a lock of the file system
// on the range meanwhile, or does without one as it would without nvio: either way the bytes that
// it does not change must be in the file as short a time as they can.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "../store/slots.h"
#include "../system/real.h"
#include "cached_file.h"
#include "raise_to.h"

namespace nvio {

// The file's own bytes, also for those that are cached and not dirty: another job may have written
// them since. The group's lock is held while it is read: nothing is written back meanwhile.
ssize_t CachedFile::read_window(std::uint64_t offset, void* buffer, std::size_t length) {
  char* target = static_cast<char*>(buffer);
  count(counters_.reads);
  if (entry_.mode.load() == kDraining) activate();
  if (nothing_cached()) return read_real(offset, target, length);
  std::uint64_t stop = offset;  // of what there is
  for (const FileRun part : Cut<kGroupSize>(offset, length)) {
    const HeldGroup held = blocks_.hold(part.offset);
    const ssize_t got = read_real(part.offset, target + (part.offset - offset), part.length);
    if (got < 0) return -1;
    const std::uint64_t in_file = part.offset + static_cast<std::uint64_t>(got);
    if (got > 0) grow(in_file);
    stop = std::min(part.end(), entry_.size.load(std::memory_order_acquire));
    if (stop > in_file) std::memset(target + (in_file - offset), 0, stop - in_file);
    const std::uint64_t there = stop - std::min(stop, part.offset);
    for (const Piece piece : held.pieces(part.offset, there)) {
      if (piece.slot != kNone) lay_over(piece, target + (piece.offset - offset));
    }
    if (stop < part.end()) break;
  }
  return static_cast<ssize_t>(stop > offset ? stop - offset : 0);
}

// The program's own bytes onto what the file has, and that into the block.
void CachedFile::lay_over(const Piece& piece, char* bytes) {
  char* cached = bytes_of(piece);
  segment_.dirty(piece.slot).each_run(piece.begin, piece.stop, [&](std::size_t a, std::size_t b) {
    std::memcpy(bytes + (a - piece.begin), cached + (a - piece.begin), b - a);
  });
  segment_.valid(piece.slot).each_run(piece.begin, piece.stop, [&](std::size_t a, std::size_t b) {
    std::memcpy(cached + (a - piece.begin), bytes + (a - piece.begin), b - a);
  });
}

// Dirty bytes stay so, with their new value, and those that the redo log has are logged again: no
// older value of theirs comes later. All others are in the file now, and no business of ours.
ssize_t CachedFile::write_window(std::uint64_t offset, const void* buffer, std::size_t length) {
  const char* source = static_cast<const char*>(buffer);
  count(counters_.writes);
  if (length == 0) return 0;
  if (entry_.mode.load() == kDraining) activate();
  if (entry_.aside.load() == 0 && entry_.mode.load(std::memory_order_acquire) == kPassive) {
    if (const ssize_t done = write_passive(offset, source, length); done != -2) return done;
  }
  for (const FileRun part : Cut<kGroupSize>(offset, length)) {
    const HeldGroup held = blocks_.hold(part.offset);
    const std::uint64_t before = part.offset - offset;
    if (!write_past(held, part.offset, source + before, part.length)) {
      return before != 0 ? static_cast<ssize_t>(before) : -1;
    }
    grow(part.end());
    for (const Piece piece : held.pieces(part.offset, part.length)) {
      if (piece.slot == kNone) continue;
      std::memcpy(bytes_of(piece), source + (piece.offset - offset), piece.length());
      held.mark_rewritten(piece);
    }
  }
  return static_cast<ssize_t>(length);
}

}  // namespace nvio
