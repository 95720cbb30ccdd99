// What survives: sync, checkpoint, truncation, stepping aside, and the end of a file's stay.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "../store/slots.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "cached_file.h"
#include "raise_to.h"

namespace nvio {

namespace {

// What was not made longer by this job was by another one: then clean bytes are forgotten, since
// what the store has behind the old end is emptiness, and who appends may have changed others, too.
void look_for_others(CachedFile& file, bool quiet) {
  FileEntry& entry = file.entry();
  const std::uint64_t size = file.real_file_size();
  if (size <= entry.real_size.load()) return;
  raise_to(entry.real_size, size);
  file.know_size(size);
  file.forget(CachedFile::Forget::written);
  static std::atomic<bool> said{false};
  if (quiet || said.exchange(true)) return;
  std::fprintf(
      stderr,
      "nvio: %s was made longer past nvio, by another job or in a way that it does not see; "
      "what is changed so of bytes that are cached is seen once the job has closed the file "
      "everywhere (cache=off for this file shows it at once)\n",
      entry.path);
}

}  // namespace

FileIdentity CachedFile::identity() const {
  const bool is_going = entry_.deleted.load() != kKept && !has_other_names();
  return {entry_.device, entry_.inode, entry_.path, is_going, entry_.mark};
}

void CachedFile::renew_mark() {
  if (entry_.mark.handle_length != 0 || write_fd_ < 0) return;
  const FileMark now = mark_of(write_fd_, entry_.path);
  if (std::memcmp(&now, &entry_.mark, sizeof now) == 0) return;
  const std::lock_guard guard(entry_.lock);
  entry_.mark = now;
}

bool CachedFile::has_log_records() const {
  return entry_.log_in_doubt.load() != 0 ||
         (entry_.log.epoch != 0 && entry_.log.tail > kFirstRecord);
}

bool CachedFile::open_log() {
  if (log_medium_ == nullptr) {
    std::string why;
    log_medium_ = session_.open_log(entry_, why);
  }
  return log_medium_ != nullptr;
}

int CachedFile::durable_in_file() {
  int fd = write_fd_ >= 0 ? write_fd_ : write_back_fd_.load();
  if (fd < 0) fd = read_fd_;
  if (fd < 0) return EBADF;
  entry_.direct_writes.store(kBeingSynced);
  if (real().fsync(fd) == 0) {
    std::uint32_t expected = kBeingSynced;
    entry_.direct_writes.compare_exchange_strong(expected, kDurable);
    return 0;
  }
  const int error = errno;
  // The kernel takes what it could not write for written: only who writes it again gets it there.
  blocks_.each_slot([this](std::uint32_t slot) { mark_lacking(segment_, slot); });
  entry_.untold.store(error);
  entry_.direct_writes.store(kWritten);
  return error;
}

// The fences keep the compiler from moving the stores: a killed process has made those before the
// place where it was killed, and no others.
void CachedFile::publish(const LogPosition& position) {
  entry_.log_in_doubt.store(1);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  entry_.log = position;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  entry_.log_in_doubt.store(0);
}

// Begins the log's next epoch. Killed between the new superblock and its publication, a process
// would leave the others adding records of the old epoch, which no recovery reads. Started again
// from the same position, it writes the same superblock. Before the first epoch there is no record
// to lose, and a store that has no room for a log goes without.
int CachedFile::start_log() {
  LogPosition position = entry_.log;
  if (!entry_.mark.tells_apart() && write_fd_ >= 0) entry_.mark = mark_of(write_fd_, entry_.path);
  if (position.epoch != 0) entry_.log_in_doubt.store(1);
  // The file may have been made just now: its own name must survive, too, or its log is for none.
  const bool is_first = position.epoch == 0 && log_medium_->survives() == Survives::machine;
  if (is_first) persist_folder(folder_of(entry_.path));
  if (const int error = LogWriter(*log_medium_, position).start(identity())) return error;
  publish(position);
  return 0;
}

int CachedFile::sync() {
  const std::lock_guard guard(entry_.lock);
  int error = sync_locked();
  const int untold = entry_.untold.exchange(0);
  if (error == 0) error = untold;
  if (error == 0) entry_.synced.store(1);
  return error;
}

int CachedFile::sync_locked() {
  count(counters_.syncs);
  if (nothing_cached()) return durable_in_file();
  if (session_.nodes() <= 1) look_for_others(*this, session_.settings().quiet);
  const bool is_settled = entry_.changes.load() == kSettled;
  if (entry_.sync == static_cast<std::uint8_t>(SyncTo::file)) {
    return is_settled && !has_log_records() ? durable_in_file() : checkpoint_locked();
  }
  // The log takes of the same store as the blocks: once it has grown to half of what they may
  // take, it is cheaper to have the file durable and begin it anew.
  constexpr std::uint64_t kLeast = 4 << 20;
  const std::uint64_t most = std::max(kLeast, segment_.header().slots * kBlockSize / 2);
  if (entry_.log.tail > most) return checkpoint_locked();
  // A store that has no room for the log, or cannot be written, leaves the plain way; so does want
  // of memory.
  if (or_no_memory([this] { return log_changes(); }) != 0) return checkpoint_locked();
  return entry_.direct_writes.load() != kDurable ? durable_in_file() : 0;
}

// Unless something has changed since it was begun.
void CachedFile::settle() {
  std::uint32_t expected = kBeingSettled;
  entry_.changes.compare_exchange_strong(expected, kSettled);
}

// Appends what changed since the last commit. The position is published only after the commit, so
// a process that dies here leaves the log as it was.
int CachedFile::log_changes() {
  if (entry_.log_in_doubt.load() != 0 || !open_log()) return EIO;
  if (entry_.log.epoch == 0) {
    if (const int error = start_log()) return error;
  }
  if (entry_.changes.load() == kSettled) return 0;
  entry_.changes.store(kBeingSettled);
  LogPosition position = entry_.log;
  LogWriter writer(*log_medium_, position);
  std::uint64_t bytes = 0;
  const std::uint64_t first = position.sequence;
  const int failed = blocks_.each_group(false, [&](const HeldGroup& held) {
    for (const Piece block : held.blocks()) {
      if (block.slot == kNone) continue;
      Slot& state = segment_.slot(block.slot);
      const auto changed = static_cast<std::uint16_t>(state.unlogged_pages | state.logging_pages);
      if (changed == 0) continue;
      state.logging_pages = changed;
      state.unlogged_pages = 0;
      int error = 0;
      each_page_run(changed, [&](std::uint64_t from, std::uint64_t to) {
        segment_.dirty(block.slot).each_run(from, to, [&](std::size_t a, std::size_t b) {
          // What was cut off may be dirty still: logged, it would make the file longer.
          const std::uint64_t size = entry_.size.load();
          const std::uint64_t offset = block.offset + a;
          if (error != 0 || offset >= size) return;
          const std::size_t length = std::min<std::uint64_t>(b - a, size - offset);
          error = writer.extent(offset, segment_.block(block.slot) + a, length);
          bytes += length;
        });
      });
      if (error != 0) return error;
    }
    return 0;
  });
  if (failed != 0) return failed;
  if (position.sequence != first) {
    if (const int error = writer.commit(entry_.size.load())) return error;
    publish(position);
  }
  count(counters_.logged_bytes, bytes);
  blocks_.each_slot([this](std::uint32_t slot) {
    Slot& state = segment_.slot(slot);
    state.logged_pages |= state.logging_pages;
    state.logging_pages = 0;
  });
  settle();
  return 0;
}

int CachedFile::checkpoint() {
  const std::lock_guard guard(entry_.lock);
  return checkpoint_locked();
}

int CachedFile::checkpoint_locked() {
  count(counters_.checkpoints);
  const bool has_log = has_log_records();
  if (has_log && !open_log()) return EIO;  // its records would come over what the file has then
  if (has_log && entry_.log_in_doubt.load() == 0) {
    LogPosition position = entry_.log;
    LogWriter(*log_medium_, position).mark(LogState::flushing, identity());
  }
  entry_.changes.store(kBeingSettled);
  if (const int error = write_back_all(Till::durable)) return error;
  if (const int error = durable_in_file()) return error;
  if (has_log) {
    if (const int error = start_log()) return error;
  }
  blocks_.each_slot([this](std::uint32_t slot) { mark_unlogged(segment_, slot); });
  settle();
  return 0;
}

int CachedFile::truncate(std::uint64_t size) {
  if (write_fd_ < 0) return EINVAL;  // as ftruncate says of a descriptor not open for writing
  const std::lock_guard guard(entry_.lock);
  // The file is cut at once, and what comes after may go past the cache: no older record may be
  // replayed over it.
  if (has_log_records()) {
    if (const int error = checkpoint_locked()) return error;
  }
  // The file system may refuse: till then all that was written stays.
  const auto cut = [&] { return real().ftruncate(write_fd_, static_cast<off_t>(size)) == 0; };
  if (!cut()) return errno;
  // Also what was fetched meanwhile, of what the file still had there.
  forget_beyond(size);
  // Whoever made room in between may have written back what was beyond.
  if (size_in_file().value_or(size) > size) {
    if (!cut()) return errno;
    forget_beyond(size);
  }
  entry_.size.store(size);
  entry_.real_size.store(size);
  entry_.confirmed.store(size);
  entry_.direct_writes.store(kWritten);
  return 0;
}

void CachedFile::forget_beyond(std::uint64_t size) {
  if (entry_.aside.load() != 0) return;
  blocks_.each_group(false, [&](const HeldGroup& held) {
    for (const Piece block : held.blocks()) {
      if (block.slot == kNone || block.offset + kBlockSize <= size) continue;
      cut(segment_, block.slot, size - std::min(size, block.offset));
    }
    return 0;
  });
}

int CachedFile::step_aside() {
  const std::lock_guard guard(entry_.lock);
  if (entry_.aside.load() != 0) return 0;
  if (entry_.mode.load() == kActive) entry_.mode.store(kLeaving);
  // From here on only bytes that are dirty already can be dirtied again: this ends.
  for (int round = 0; entry_.blocks.load() != 0 || has_log_records(); ++round) {
    constexpr int kRounds = 100;
    const int error = checkpoint_locked();
    if (error != 0 || round == kRounds) {
      entry_.mode.store(kActive);
      return error != 0 ? error : EBUSY;
    }
    forget(Forget::written);
  }
  entry_.aside.store(1);
  const bool shows = session_.nodes() <= 1 || entry_.direct_writes.load() == kDurable;
  return shows ? 0 : durable_in_file();
}

void CachedFile::expect_deletion() {
  const std::lock_guard guard(entry_.lock);
  std::uint32_t kept = kKept;
  if (entry_.deleted.compare_exchange_strong(kept, kExpected)) mark_log();
}

void CachedFile::discard() {
  const std::lock_guard guard(entry_.lock);
  entry_.deleted.store(kDiscarded);
}

// Tells recovery whether the file is about to be deleted.
void CachedFile::mark_log() {
  if (!has_log_records() || !open_log()) return;
  LogPosition position = entry_.log;
  LogWriter(*log_medium_, position).mark(LogState::live, identity());
}

void CachedFile::settle_deletion() {
  if (entry_.deleted.load() != kExpected) return;
  entry_.deleted.store(has_no_name() ? kDiscarded : kKept);
  mark_log();
}

int CachedFile::finish() {
  const std::lock_guard guard(entry_.lock);
  const bool has_log = entry_.log.epoch != 0;
  int error = 0;
  settle_deletion();
  if (entry_.deleted.load() == kKept) {
    const bool durable = entry_.close == static_cast<std::uint8_t>(Close::durable);
    const bool has_records = has_log_records();
    if (has_records || (durable && entry_.blocks.load() != 0)) {
      error = checkpoint_locked();
    } else if (!durable) {
      error = write_back_all(Till::durable);
      if (error == 0) error = flush();
    } else if (entry_.direct_writes.load() != kDurable) {
      error = durable_in_file();
    }
    // The file system refused: what is left can still be rebuilt by `nvio recover`. It stays here,
    // too, so that the file holds it when it is opened again, and the close that writes it deletes
    // the log: else these records would be replayed over newer bytes.
    if (error != 0 && entry_.blocks.load() != 0) {
      or_no_memory([this] { return log_changes(); });
    }
  }
  forget(error == 0 ? Forget::all : Forget::written);
  log_medium_.reset();
  if (has_log && (error == 0 || !entry_.holds_unwritten())) session_.delete_log(entry_);
  return error;
}

}  // namespace nvio
