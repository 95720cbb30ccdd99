// The pieces of a view: found block by block as any bytes, but with one lock for all of a MiB.
#include <fcntl.h>

#include <cerrno>

#include "cached_file.h"

namespace nvio {
namespace {

// As good as a transfer of its own, which may be large, or part of a stream.
bool is_long(const FileRun& run) { return run.length >= kBlockSize; }

bool lies_in(const FileRun& run, std::uint64_t group_index) {
  return run.offset / kGroupSize == group_index && (run.end() - 1) / kGroupSize == group_index;
}

}  // namespace

CachedFile::LockedRange::LockedRange(const CachedFile& file, std::uint64_t begin, std::uint64_t end)
    : fd_(file.write_fd_), begin_(begin), end_(end), is_held_(set(F_WRLCK)) {}

CachedFile::LockedRange::~LockedRange() {
  if (is_held_) set(F_UNLCK);
}

bool CachedFile::LockedRange::set(short type) const {
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

bool CachedFile::takes_runs(Direction direction) const {
  const bool automatic = entry_.admit == static_cast<std::uint8_t>(Admit::automatic);
  return entry_.aside.load() == 0 && entry_.mode.load() == kActive &&
         (!automatic || is_slow(entry_, direction));
}

bool CachedFile::read_runs(std::span<const FileRun> runs, char* buffer) {
  while (!runs.empty()) {
    std::size_t done = nothing_cached() ? 0 : read_runs_of_group(runs, buffer);
    for (std::size_t i = 0; i < done; ++i) buffer += runs[i].length;
    runs = runs.subspan(done);
    if (runs.empty()) break;
    // What does not lie in one MiB, or needs more than its lock.
    const FileRun& next = runs.front();
    if (read(next.offset, buffer, next.length) != static_cast<ssize_t>(next.length)) return false;
    buffer += next.length;
    runs = runs.subspan(1);
  }
  return true;
}

std::size_t CachedFile::read_runs_of_group(std::span<const FileRun> runs, char* buffer) {
  // The file system's read-ahead sees no stream in them.
  pattern_.note(runs.front().offset, 1);
  const bool fetching = may_fetch();
  HeldGroup held(*this, runs.front().offset / kGroupSize);
  std::size_t done = 0;
  while (done < runs.size() && !is_long(runs[done]) && lies_in(runs[done], held.index) &&
         read_held(held, runs[done].offset, buffer, runs[done].length, fetching) == Outcome::done) {
    buffer += runs[done++].length;
  }
  count(counters_.reads, done);
  return done;
}

bool CachedFile::write_runs(std::span<const FileRun> runs, const char* buffer) {
  if (write_fd_ < 0) return false;
  const bool automatic = entry_.admit == static_cast<std::uint8_t>(Admit::automatic);
  while (!runs.empty()) {
    const bool admit = admits() && (!automatic || is_slow(entry_, Direction::write));
    std::size_t done = nothing_cached() ? 0 : write_runs_of_group(runs, buffer, admit);
    for (std::size_t i = 0; i < done; ++i) buffer += runs[i].length;
    if (done != 0) grow(runs[done - 1].end());
    runs = runs.subspan(done);
    if (runs.empty()) break;
    const FileRun& next = runs.front();
    if (write(next.offset, buffer, next.length) != static_cast<ssize_t>(next.length)) return false;
    buffer += next.length;
    runs = runs.subspan(1);
  }
  return true;
}

std::size_t CachedFile::write_runs_of_group(std::span<const FileRun> runs, const char* buffer,
                                            bool admit) {
  HeldGroup held(*this, runs.front().offset / kGroupSize);
  std::size_t done = 0;
  while (done < runs.size() && !is_long(runs[done]) && lies_in(runs[done], held.index) &&
         write_held(held, runs[done].offset, buffer, runs[done].length, admit, false) ==
             Outcome::done) {
    buffer += runs[done++].length;
  }
  count(counters_.writes, done);
  return done;
}

}  // namespace nvio
