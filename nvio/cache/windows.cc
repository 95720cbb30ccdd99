// What is read to be changed and written back as a whole. The MPI holds a lock of the file system
// on the range meanwhile, or does without one as it would without nvio: either way the bytes that
// it does not change must be in the file as short a time as they can.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "../store/slots.h"
#include "../system/real.h"
#include "cached_file.h"
#include "piece.h"
#include "raise_to.h"

namespace nvio {

// The file's own bytes, also for those that are cached and not dirty: another job may have written
// them since. The group's lock is held while it is read: nothing is written back meanwhile.
ssize_t CachedFile::read_window(std::uint64_t offset, void* buffer, std::size_t length) {
  char* target = static_cast<char*>(buffer);
  count(counters_.reads);
  if (entry_.mode.load() == kDraining) activate();
  if (nothing_cached()) return read_real(offset, target, length);
  const std::uint64_t end = offset + length;
  std::uint64_t stop = offset;  // of what there is
  for (std::uint64_t at = offset; at < end;) {
    const std::uint64_t group_index = at / kGroupSize;
    const std::uint64_t limit = std::min(end, (group_index + 1) * kGroupSize);
    Bucket& bucket = segment_.bucket_of(index_, group_index);
    const std::lock_guard guard(bucket.lock);
    const ssize_t got = read_real(at, target + (at - offset), limit - at);
    if (got < 0) return -1;
    const std::uint64_t in_file = at + static_cast<std::uint64_t>(got);
    grow(in_file);
    stop = std::min(limit, entry_.size.load(std::memory_order_acquire));
    if (stop > in_file) std::memset(target + (in_file - offset), 0, stop - in_file);
    const std::uint32_t group = segment_.find_group(bucket, index_, group_index);
    while (at < stop) {
      const Piece piece(at, stop);
      const std::uint32_t slot = group == kNone ? kNone : segment_.group(group).slot[piece.place];
      if (slot != kNone) lay_over(slot, piece.begin, piece.stop, target + (at - offset));
      at = piece.next;
    }
    if (stop < limit) break;
  }
  return static_cast<ssize_t>(stop > offset ? stop - offset : 0);
}

// The program's own bytes onto what the file has, and that into the block.
void CachedFile::lay_over(std::uint32_t slot, std::uint64_t begin, std::uint64_t stop,
                          char* bytes) {
  char* block = segment_.block(slot);
  session_.memory().access(stop - begin);
  segment_.dirty(slot).each_run(begin, stop, [&](std::size_t a, std::size_t b) {
    std::memcpy(bytes + (a - begin), block + a, b - a);
  });
  segment_.valid(slot).each_run(begin, stop, [&](std::size_t a, std::size_t b) {
    std::memcpy(block + a, bytes + (a - begin), b - a);
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
  const std::uint64_t end = offset + length;
  for (std::uint64_t at = offset; at < end;) {
    const HeldGroup held(*this, at / kGroupSize);
    const std::uint64_t limit = std::min(end, (held.index + 1) * kGroupSize);
    if (!write_past(held.group, at, source + (at - offset), limit - at)) {
      return at > offset ? static_cast<ssize_t>(at - offset) : -1;
    }
    grow(limit);
    while (at < limit) {
      const Piece piece(at, limit);
      const std::uint32_t slot =
          held.group == kNone ? kNone : segment_.group(held.group).slot[piece.place];
      if (slot != kNone) {
        session_.memory().access(piece.stop - piece.begin);
        std::memcpy(segment_.block(slot) + piece.begin, source + (at - offset),
                    piece.stop - piece.begin);
        mark_rewritten(segment_, slot, piece.begin, piece.stop);
      }
      at = piece.next;
    }
  }
  return static_cast<ssize_t>(length);
}

}  // namespace nvio
