// What a node does with a file that several nodes cache: the steps by which they begin together
// (nodes/job_file.h says in which order), and what a manager can serve without waiting.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <mutex>

#include "../system/real.h"
#include "cached_file.h"
#include "raise_to.h"

namespace nvio {

ssize_t CachedFile::read_plain(std::uint64_t offset, void* buffer, std::size_t length) {
  count(counters_.reads);
  if (length == 0) return 0;
  pattern_.note(offset, length);
  return read_real(offset, static_cast<char*>(buffer), length);
}

std::optional<ssize_t> CachedFile::write_plain(std::uint64_t offset, const void* buffer,
                                               std::size_t length) {
  const ssize_t done = write_passive(offset, static_cast<const char*>(buffer), length);
  if (done == -2) return std::nullopt;
  count(counters_.writes);
  return done;
}

bool CachedFile::wants_cache() const {
  return is_automatic() && (is_slow(entry_, Direction::read) || is_slow(entry_, Direction::write));
}

// A truncation of a plain file is told to no other node: what was confirmed before says nothing.
void CachedFile::leave_plain() {
  if (is_plain()) entry_.confirmed.store(0);
  std::uint32_t expected = kPassive;
  entry_.mode.compare_exchange_strong(expected, kDraining);
}

// What was written plainly here may lie in this node's client yet: no other node sees it, and later
// it would come over what those write to its place.
int CachedFile::drain() {
  leave_plain();
  const bool under_way = std::any_of(
      std::begin(entry_.writes_under_way), std::end(entry_.writes_under_way),
      [](WriteUnderWay& write) { return !std::unique_lock(write.lock, std::try_to_lock); });
  if (under_way) return EBUSY;
  return session_.nodes() > 1 ? show_others() : 0;
}

int CachedFile::show_others() {
  if (entry_.direct_writes.load() == kDurable) return 0;
  const std::lock_guard guard(entry_.lock);
  return durable_in_file();
}

void CachedFile::see_anew() {
  const std::lock_guard guard(lending_);
  anew_.reserve(anew_.size() + 1);
  const int fd = open_anew();
  if (fd >= 0) anew_.push_back(fd);
}

std::uint64_t CachedFile::real_file_size() const { return size_in_file().value_or(0); }

// While draining, writers go to the file and tell the home node how long it became. Whoever did so
// after the size was looked at must not be forgotten.
void CachedFile::activate_drained(std::uint64_t size) {
  const std::unique_lock guard(entry_.lock, std::try_to_lock);  // against truncations
  if (!guard || entry_.aside.load() != 0 || entry_.mode.load() != kDraining) return;
  if (session_.nodes() > 1) see_anew();
  std::uint64_t before = entry_.size.load();
  std::uint64_t now = 0;
  do {
    const auto in_file = size_in_file();
    if (!in_file) return;
    now = std::max(size, *in_file);
  } while (!entry_.size.compare_exchange_strong(before, now));
  raise_to(entry_.real_size, now);
  // Some other node may have been plain until now.
  entry_.confirmed.store(0);
  std::uint32_t expected = kDraining;
  entry_.mode.compare_exchange_strong(expected, kActive);
}

bool CachedFile::try_read(std::uint64_t offset, void* buffer, std::size_t length) {
  if (nothing_cached() || length == 0 || offset + length > entry_.size.load()) return false;
  HeldGroup held = blocks_.hold(offset, std::try_to_lock);
  if (!held.exists() || !held.holds({offset, length}) ||
      read_held(held, offset, static_cast<char*>(buffer), length, false) != Outcome::done) {
    return false;
  }
  count(counters_.reads);
  return true;
}

// A block that is not cached yet may have to wait for room.
bool CachedFile::try_write(std::uint64_t offset, const void* buffer, std::size_t length) {
  if (!takes_runs(Direction::write) || write_fd_ < 0 || length == 0) return false;
  HeldGroup held = blocks_.hold(offset, std::try_to_lock);
  if (!held.exists() || !held.holds({offset, length})) return false;
  for (const Piece piece : held.pieces(offset, length)) {
    if (piece.slot == kNone) return false;
  }
  count(counters_.writes);
  return write_held(held, offset, static_cast<const char*>(buffer), length, true, true) ==
         Outcome::done;
}

}  // namespace nvio
