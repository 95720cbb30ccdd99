// What goes to the file itself: everything as long as nothing of it is cached, later what the cache
// lets pass.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "../store/slots.h"
#include "../system/real.h"
#include "cached_file.h"
#include "raise_to.h"

namespace nvio {

std::optional<std::uint64_t> CachedFile::size_in_file() const {
  struct stat status {};
  if (real().fstat(read_fd_ >= 0 ? read_fd_ : write_fd_, &status) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(status.st_size);
}

std::uint64_t CachedFile::names() const {
  struct stat status {};
  const bool is_known = real().fstat(read_fd_ >= 0 ? read_fd_ : write_fd_, &status) == 0 &&
                        status.st_ino == entry_.inode && status.st_dev == entry_.device;
  return is_known ? status.st_nlink : 1;
}

std::uint64_t CachedFile::size() const {
  if (nothing_cached()) {
    // Nothing of the file is cached: what the file system says holds, also for what others wrote.
    // But for a node that left before the others: those may cache what the file lacks.
    const bool first = session_.nodes() > 1 && entry_.aside.load() != 0 && entry_.left.load() == 0;
    if (const auto size = size_in_file())
      return first ? std::max(*size, entry_.size.load()) : *size;
  }
  return entry_.size.load(std::memory_order_acquire);
}

void CachedFile::activate() {
  if (session_.nodes() > 1 || entry_.aside.load() != 0) return;  // nodes do it together: nodes.cc
  if (drain() == 0) activate_drained(0);
}

bool CachedFile::admits() const {
  if (entry_.mode.load() == kLeaving) {
    const std::unique_lock nobody_leads(entry_.lock, std::try_to_lock);
    std::uint32_t expected = kLeaving;
    if (nobody_leads && entry_.aside.load() == 0) {
      entry_.mode.compare_exchange_strong(expected, kActive);
    }
  }
  return entry_.mode.load() == kActive;
}

ssize_t CachedFile::read_real(std::uint64_t offset, char* buffer, std::size_t length) {
  if (read_fd_ < 0) {
    errno = EBADF;
    return -1;
  }
  const SampledTimer timer(read_calls_, entry_, Direction::read);
  const ssize_t done = read_fully(read_fd_, buffer, length, static_cast<off_t>(offset));
  if (done > 0 && length < entry_.bypass_size) timer.note(entry_, length);
  count(counters_.reads_direct);
  return done;
}

std::unique_lock<SharedLock> CachedFile::begin_write() const {
  std::unique_lock<SharedLock> under_way;
  for (std::uint32_t i = 0; i < kWritesUnderWay && !under_way; ++i) {
    SharedLock& lock = entry_.writes_under_way[(first_write_ + i) % kWritesUnderWay].lock;
    under_way = std::unique_lock(lock, std::try_to_lock);
  }
  return under_way;
}

ssize_t CachedFile::write_passive(std::uint64_t offset, const char* buffer, std::size_t length) {
  if (entry_.mode.load() != kPassive) return -2;
  const std::unique_lock<SharedLock> under_way = begin_write();
  // The mode changed, or more threads write than can be kept account of: not done, go the other
  // way.
  if (!under_way || entry_.mode.load() != kPassive) return -2;
  return write_direct(offset, buffer, length) ? static_cast<ssize_t>(length) : -1;
}

bool CachedFile::write_direct(std::uint64_t offset, const char* buffer, std::size_t length) {
  if (write_fd_ < 0) {
    errno = EBADF;
    return false;
  }
  count(counters_.writes_direct);
  // Before: who finds the file longer than this takes it for another job's doing.
  raise_to(entry_.real_size, offset + length);
  const SampledTimer timer(write_calls_, entry_, Direction::write);
  const bool done = write_fully(write_fd_, buffer, length, static_cast<off_t>(offset)) >= 0;
  // What goes round a cache that takes small writes is no example of them.
  if (done && length < entry_.bypass_size &&
      (nothing_cached() || !is_timed(entry_, Direction::write))) {
    timer.note(entry_, length);
  }
  // Not written again and again: all ranks read the line that it lies on.
  if (entry_.direct_writes.load() != kWritten) entry_.direct_writes.store(kWritten);
  return done;
}

// Of a write that fails the file may have some: clean copies are neither what it had nor what it
// was to have.
bool CachedFile::write_past(const HeldGroup& held, std::uint64_t offset, const char* buffer,
                            std::size_t length) {
  if (write_direct(offset, buffer, length)) return true;
  for (const Piece piece : held.pieces(offset, length)) {
    if (piece.slot != kNone) forget_clean(segment_, piece.slot);
  }
  return false;
}

}  // namespace nvio
