// The pieces of a view: found block by block as any bytes, but with one lock for all of a MiB.
#include <fcntl.h>

#include <cerrno>

#include "cached_file.h"

namespace nvio {
namespace {

// As good as a transfer of its own, which may be large, or part of a stream.
bool is_long(const FileRun& run) { return run.length >= kBlockSize; }

}  // namespace

CachedFile::Undisturbed::Undisturbed(const CachedFile& file, std::uint64_t begin, std::uint64_t end)
    : fd_(file.write_fd_), begin_(begin), end_(end), under_way_(file.begin_pieces()) {
  if (!under_way_) is_locked_ = set(F_WRLCK);
}

CachedFile::Undisturbed::~Undisturbed() {
  if (is_locked_) set(F_UNLCK);
}

bool CachedFile::Undisturbed::set(short type) const {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(begin_);
  range.l_len = static_cast<off_t>(end_ - begin_);
  int done = 0;
  do {
    done = fcntl(fd_, F_SETLKW, &range);
  } while (done != 0 && errno == EINTR);
  return done == 0;
}

// What another node's processes lock is not known here. And while the file is drained, who begins
// to cache it must not wait for himself.
std::unique_lock<SharedLock> CachedFile::begin_pieces() const {
  if (session_.nodes() > 1 || !is_active()) return {};
  std::unique_lock<SharedLock> under_way = begin_write();
  if (entry_.range_locks.load() != kNoLocks) under_way = {};
  return under_way;
}

void CachedFile::expect_locks() {
  if (entry_.range_locks.load() == kKnownLocks) return;
  entry_.range_locks.store(kFirstLock);
  for (WriteUnderWay& write : entry_.writes_under_way) const std::lock_guard ended(write.lock);
  entry_.range_locks.store(kKnownLocks);
}

bool CachedFile::takes_runs(Direction direction) const { return is_active() && pays(direction); }

bool CachedFile::is_undecided(Direction direction) const {
  if (entry_.aside.load() != 0 || !is_automatic()) return false;
  return !is_timed(entry_, direction) || (nothing_cached() && is_slow(entry_, direction));
}

template <typename Byte, typename Some, typename One>
bool CachedFile::each_run(std::span<const FileRun> runs, Byte* buffer, Some&& some, One&& one) {
  while (!runs.empty()) {
    const std::size_t done = nothing_cached() ? 0 : some(runs, buffer);
    for (const FileRun& run : runs.first(done)) buffer += run.length;
    runs = runs.subspan(done);
    if (runs.empty()) break;
    // What does not lie in one MiB, or needs more than its lock.
    const FileRun& next = runs.front();
    if (one(next.offset, buffer, next.length) != static_cast<ssize_t>(next.length)) return false;
    buffer += next.length;
    runs = runs.subspan(1);
  }
  return true;
}

template <typename Byte, typename One>
std::size_t CachedFile::runs_of_group(std::span<const FileRun> runs, Byte* buffer, One&& one) {
  HeldGroup held = blocks_.hold(runs.front().offset);
  std::size_t done = 0;
  while (done < runs.size() && !is_long(runs[done]) && held.holds(runs[done]) &&
         one(held, runs[done].offset, buffer, runs[done].length) == Outcome::done) {
    buffer += runs[done++].length;
  }
  return done;
}

bool CachedFile::read_runs(std::span<const FileRun> runs, char* buffer) {
  const auto some = [&](std::span<const FileRun> left, char* to) {
    // The file system's read-ahead sees no stream in them.
    pattern_.note(left.front().offset, 1);
    const bool fetching = may_fetch();
    const std::size_t done = runs_of_group(
        left, to, [&](HeldGroup& held, std::uint64_t at, char* place, std::uint64_t length) {
          return read_held(held, at, place, length, fetching);
        });
    count(counters_.reads, done);
    return done;
  };
  return each_run(runs, buffer, some, [&](std::uint64_t at, char* place, std::uint64_t length) {
    return read(at, place, length);
  });
}

bool CachedFile::write_runs(std::span<const FileRun> runs, const char* buffer) {
  if (write_fd_ < 0) return false;
  const auto some = [&](std::span<const FileRun> left, const char* from) {
    const std::size_t done = runs_of_group(
        left, from,
        [&](HeldGroup& held, std::uint64_t at, const char* piece, std::uint64_t length) {
          // Asked for each: the first ones may show that the file is slow.
          return write_held(held, at, piece, length, admits() && pays(Direction::write), false);
        });
    count(counters_.writes, done);
    if (done != 0) grow(left[done - 1].end());
    return done;
  };
  return each_run(runs, buffer, some,
                  [&](std::uint64_t at, const char* piece, std::uint64_t length) {
                    return write(at, piece, length);
                  });
}

}  // namespace nvio
