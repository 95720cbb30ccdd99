// Reading and writing; runs.cc, direct.cc, windows.cc, fetch.cc, write_back.cc, durability.cc and
// nodes.cc hold the rest of the class.
#include "cached_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "../store/slots.h"
#include "../system/real.h"
#include "raise_to.h"

namespace nvio {
namespace {

constexpr int kTries = 4;  // times to make room for one transfer before it goes to the file

// The same file, to be read or written as `fd` is, with no other flag. -1 with errno.
int opened_anew(int fd) {
  const PathOfDescriptor self(fd);
  return real().open(self.c_str(), (fcntl(fd, F_GETFL) & O_ACCMODE) | O_CLOEXEC);
}

}  // namespace

CachedFile::CachedFile(Session& session, std::uint32_t index)
    : session_(session),
      segment_(session.segment()),
      counters_(session.counters()),
      entry_(session.segment().file(index)),
      first_write_(static_cast<std::uint32_t>(getpid())),
      index_(index),
      blocks_(segment_, index) {}

CachedFile::~CachedFile() { close(); }

int CachedFile::close() {
  int error = 0;
  const auto shut = [&error](int fd) {
    if (fd >= 0 && real().close(fd) != 0 && error == 0) error = errno;
  };
  shut(fetch_fd_.exchange(-1));
  shut(write_back_fd_.exchange(-EBADF));
  for (const int fd : std::exchange(anew_, {})) shut(fd);
  if (write_fd_ != read_fd_) shut(write_fd_);
  shut(read_fd_);
  read_fd_ = write_fd_ = -1;
  return error;
}

bool CachedFile::owns(int fd) const {
  const std::lock_guard guard(lending_);
  return fd == read_fd_ || fd == write_fd_ || fd == fetch_fd_.load() ||
         fd == write_back_fd_.load() || std::find(anew_.begin(), anew_.end(), fd) != anew_.end();
}

int CachedFile::open_anew() const { return opened_anew(read_fd_ >= 0 ? read_fd_ : write_fd_); }

bool CachedFile::lend(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  const int access = flags & O_ACCMODE;
  bool reads = access != O_WRONLY && read_fd_ < 0;
  bool writes = access != O_RDONLY && write_fd_ < 0;
  if (!reads && !writes) return true;
  int own = (flags & (O_APPEND | O_DIRECT | O_SYNC | O_DSYNC)) == 0 ? -1 : opened_anew(fd);
  if (own < 0) {
    // Where the file may not be opened again, the program does without O_DIRECT, of which it sees
    // nothing while we serve it; what appends is of no use for writing.
    if ((flags & O_DIRECT) != 0) fcntl(fd, F_SETFL, flags & ~O_DIRECT);
    writes = writes && (flags & O_APPEND) == 0;
    if (!reads && !writes) return true;
    own = real().dup(fd);
    if (own < 0) return false;
  }
  const std::lock_guard guard(lending_);
  stands_alone_ = false;
  if (reads) read_fd_ = own;
  if (writes) write_fd_ = own;
  return true;
}

int CachedFile::stand_alone() {
  const std::lock_guard guard(lending_);
  if (stands_alone_) return 0;
  for (const int fd : {read_fd_, write_fd_}) {
    if (fd < 0) continue;
    const int own = opened_anew(fd);
    if (own < 0) return errno;
    dup3(own, fd, O_CLOEXEC);  // under the same number: other threads may be using it
    real().close(own);
  }
  stands_alone_ = true;
  return 0;
}

void CachedFile::grow(std::uint64_t end) { raise_to(entry_.size, end); }

// --- reading -----------------------------------------------------------------------------------

ssize_t CachedFile::read(std::uint64_t offset, void* buffer, std::size_t length, bool large) {
  count(counters_.reads);
  char* target = static_cast<char*>(buffer);
  if (length == 0) return 0;
  const bool automatic = is_automatic();
  if (automatic) pattern_.note(offset, length);
  if (nothing_cached()) {
    const ssize_t done = read_real(offset, target, length);
    if (automatic && read_fd_ >= 0 && seems_slow(Direction::read)) activate();
    return done;
  }
  const std::uint64_t size = entry_.size.load(std::memory_order_acquire);
  if (offset >= size) return 0;
  length = static_cast<std::size_t>(std::min<std::uint64_t>(length, size - offset));
  large = large || length >= entry_.bypass_size;
  if (large && automatic) return read_large(offset, target, length);

  for (const FileRun part : Cut<kGroupSize>(offset, length)) {
    char* place = target + (part.offset - offset);
    // What is there is served, whatever the pattern; only what is missing is a question of cost.
    Outcome outcome = Outcome::need_room;
    for (int i = 0; i < kTries && outcome == Outcome::need_room; ++i) {
      outcome = read_group(part.offset, place, part.length, may_fetch());
      if (outcome == Outcome::need_room && !session_.make_room()) break;
    }
    if (outcome != Outcome::done) {
      session_.ledger().pay(entry_.read_seconds.load(std::memory_order_relaxed));
      if (read_around(part.offset, place, part.length) < 0) return -1;
    }
  }
  return static_cast<ssize_t>(length);
}

// Never fetches. What is cached whole, by the MiB, is served; the rest is read in runs as long as
// possible.
ssize_t CachedFile::read_large(std::uint64_t offset, char* buffer, std::size_t length) {
  std::uint64_t around_from = offset;  // from here up to the part is still to be read
  const auto read_run = [&](std::uint64_t until) {
    return until == around_from ||
           read_around(around_from, buffer + (around_from - offset), until - around_from) >= 0;
  };
  for (const FileRun part : Cut<kGroupSize>(offset, length)) {
    char* place = buffer + (part.offset - offset);
    if (read_group(part.offset, place, part.length, false) == Outcome::done) {
      if (!read_run(part.offset)) return -1;
      around_from = part.end();
    }
  }
  return read_run(offset + length) ? static_cast<ssize_t>(length) : -1;
}

// Reads the file itself and lays what the cache holds over it. A block that is written back and
// leaves the cache in between would be missed by both halves: then it is done again.
ssize_t CachedFile::read_around(std::uint64_t offset, char* buffer, std::size_t length) {
  for (;;) {
    const std::uint64_t evictions = entry_.evictions.load(std::memory_order_acquire);
    ssize_t done = 0;
    if (offset < entry_.real_size.load(std::memory_order_acquire)) {
      done = read_real(offset, buffer, length);
      // Write-only handles have no way to the file; what they wrote is in the cache.
      if (done < 0) return -1;
    }
    std::memset(buffer + done, 0, length - static_cast<std::size_t>(done));
    for (const FileRun part : Cut<kGroupSize>(offset, length)) {
      const HeldGroup held = blocks_.hold(part.offset);
      for (const Piece piece : held.pieces(part.offset, part.length)) {
        if (piece.slot == kNone) continue;
        char* place = buffer + (piece.offset - offset);
        segment_.valid(piece.slot)
            .each_run(piece.begin, piece.stop, [&](std::size_t a, std::size_t b) {
              session_.memory().access(b - a);
              std::memcpy(place + (a - piece.begin), segment_.block(piece.slot) + a, b - a);
            });
      }
    }
    if (entry_.evictions.load(std::memory_order_acquire) == evictions) break;
  }
  return static_cast<ssize_t>(length);
}

bool CachedFile::may_fetch() const {
  if (read_fd_ < 0 || !admits()) return false;
  if (!is_automatic()) return true;
  return is_slow(entry_, Direction::read) && !pattern_.is_stream();
}

CachedFile::Outcome CachedFile::read_held(HeldGroup& held, std::uint64_t offset, char* buffer,
                                          std::size_t length, bool fetching) {
  bool missed = false;
  for (Piece piece : held.pieces(offset, length)) {
    if (piece.slot == kNone || !is_valid(segment_, piece.slot, piece.begin, piece.stop)) {
      const bool automatic = is_automatic();
      if (!fetching ||
          (automatic && !fetch_pays(entry_, session_.ledger(), held.index(), length))) {
        return Outcome::not_served;
      }
      missed = true;
      const TimePoint start = clock_now();
      entry_.fetching.fetch_add(1, std::memory_order_relaxed);
      const std::uint64_t last = (offset + length - 1) % kGroupSize / kBlockSize;
      const Outcome outcome =
          automatic ? fetch(held, 0, kGroupBlocks - 1) : fetch(held, piece.place, last);
      entry_.fetching.fetch_sub(1, std::memory_order_relaxed);
      if (outcome != Outcome::done) return outcome;
      if (automatic) {
        const std::chrono::duration<double> passed = clock_now() - start;
        session_.ledger().spend(note_fetch(entry_, passed.count()));
      }
      piece.slot = held.slot(piece.place);
      if (piece.slot == kNone) return Outcome::not_served;  // the file was cut: it ends before this
    }
    std::memcpy(buffer + (piece.offset - offset), bytes_of(piece), piece.length());
    Slot& state = segment_.slot(piece.slot);
    state.recent.store(1, std::memory_order_relaxed);
    const std::uint16_t touched = pages_touched(piece.begin, piece.stop);
    if ((touched & ~state.touched_pages) != 0) {
      state.touched_pages |= touched;
      // A page that was asked for before would be in the file system's own cache by now.
      if (!missed) session_.ledger().earn(entry_.read_seconds.load(std::memory_order_relaxed));
    }
  }
  if (!missed) count(counters_.read_hits);
  return Outcome::done;
}

// --- writing -----------------------------------------------------------------------------------

ssize_t CachedFile::write(std::uint64_t offset, const void* buffer, std::size_t length,
                          bool large) {
  count(counters_.writes);
  const char* source = static_cast<const char*>(buffer);
  if (length == 0) return 0;
  if (write_fd_ < 0) {
    errno = EBADF;
    return -1;
  }
  const bool automatic = is_automatic();
  if (entry_.aside.load() != 0) {
    return write_direct(offset, source, length) ? static_cast<ssize_t>(length) : -1;
  }
  if (nothing_cached()) {
    const ssize_t done = write_passive(offset, source, length);
    if (automatic && seems_slow(Direction::write)) activate();
    if (done != -2) return done;
  }
  bool admit = admits();
  if (automatic) {
    large = large ||
            (session_.nodes() == 1 ? is_large_write(offset, length) : length >= entry_.bypass_size);
    admit = admit && !large && is_slow(entry_, Direction::write);
  }
  for (const FileRun part : Cut<kGroupSize>(offset, length)) {
    const std::uint64_t before = part.offset - offset;
    Outcome outcome = Outcome::need_room;
    for (int i = 1; outcome == Outcome::need_room; ++i) {
      const bool last_try = i == kTries;
      outcome = write_group(part.offset, source + before, part.length, admit, last_try);
      if (outcome == Outcome::need_room) session_.make_room();
    }
    if (outcome != Outcome::done) {
      if (before == 0) return -1;
      grow(part.offset);
      return static_cast<ssize_t>(before);
    }
  }
  grow(offset + length);
  return static_cast<ssize_t>(length);
}

// Bytes that the cache holds dirty, or that have a record in the redo log, must go to the cache:
// else an older one would be written over them later. The rest goes to the cache if admitted,
// else to the file, in runs as long as possible; clean copies in the cache are kept up to date.
CachedFile::Outcome CachedFile::write_held(HeldGroup& held, std::uint64_t offset,
                                           const char* buffer, std::size_t length, bool admit,
                                           bool last_try) {
  std::uint64_t direct_from = offset;  // from here up to the piece is still to go to the file
  const auto write_run = [&](std::uint64_t until) {
    return until == direct_from ||
           write_past(held, direct_from, buffer + (direct_from - offset), until - direct_from);
  };
  for (Piece piece : held.pieces(offset, length)) {
    if (piece.slot == kNone && admit) {
      piece.slot = held.take(piece.place);
      // Whoever steps aside says so and then counts the blocks; we count ours and then look. So one
      // of us sees the other, and no byte stays in a cache that everybody has left.
      if (piece.slot != kNone && entry_.mode.load() != kActive) {
        held.give(piece.place);
        piece.slot = kNone;
        admit = false;
      }
    }
    if (piece.slot == kNone && admit && !last_try) {
      // What was done so far is done again after room was made: the same bytes, no harm.
      return write_run(piece.offset) ? Outcome::need_room : Outcome::not_served;
    }
    if (piece.slot == kNone) continue;
    Slot& state = segment_.slot(piece.slot);
    const bool caches = admit || state.dirty_pages != 0 || has_records(state);
    if (caches) {
      if (!write_run(piece.offset)) return Outcome::not_served;
      direct_from = piece.offset + piece.length();
      // While the lock is held: a sync logs no byte beyond the size, and takes it for logged.
      grow(direct_from);
    }
    std::memcpy(bytes_of(piece), buffer + (piece.offset - offset), piece.length());
    if (!caches) {
      mark_valid(segment_, piece.slot, piece.begin, piece.stop);
      continue;
    }
    held.mark_dirty(piece);
    state.touched_pages |= pages_touched(piece.begin, piece.stop);
    state.recent.store(1, std::memory_order_relaxed);
    count(counters_.writes_cached);
  }
  return write_run(offset + length) ? Outcome::done : Outcome::not_served;
}

}  // namespace nvio
