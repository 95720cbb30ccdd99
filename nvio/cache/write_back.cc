// From the cache to the file: what is dirty, in runs as long as it is.
#include <fcntl.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "../store/slots.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "cached_file.h"
#include "raise_to.h"

namespace nvio {
namespace {

// Calls act(run) for each run of dirty bytes, in order.
template <typename Act>
void each_dirty_run(Segment& segment, const HeldGroup& held, Act&& act) {
  FileRun last{};
  for (const Piece block : held.blocks()) {
    if (block.slot == kNone) continue;
    each_page_run(segment.slot(block.slot).dirty_pages, [&](std::uint64_t from, std::uint64_t to) {
      segment.dirty(block.slot).each_run(from, to, [&](std::uint64_t a, std::uint64_t b) {
        if (last.length != 0 && last.end() == block.offset + a) {
          last.length += b - a;
          return;
        }
        if (last.length != 0) act(last);
        last = {block.offset + a, b - a};
      });
    });
  }
  if (last.length != 0) act(last);
}

// Returns 0 or an errno value.
int write_run(Segment& segment, const HeldGroup& held, const FileRun& run, int fd) {
  iovec vectors[kGroupBlocks];
  int used = 0;
  for (const Piece piece : held.pieces(run.offset, run.length)) {
    vectors[used++] = {segment.block(piece.slot) + piece.begin, piece.length()};
  }
  return write_vectors_fully(fd, vectors, used, static_cast<off_t>(run.offset)) >= 0 ? 0 : errno;
}

}  // namespace

// What others of the job wrote is written by whoever steps aside or closes last, also where the
// program opened the file for reading only. Below 0: minus the errno value.
int CachedFile::write_back_descriptor() {
  if (write_fd_ >= 0) return write_fd_;
  std::call_once(write_back_fd_opened_, [this] {
    const PathOfDescriptor self(read_fd_);
    const int fd = real().open(self.c_str(), O_WRONLY | O_CLOEXEC);
    write_back_fd_.store(fd >= 0 ? fd : -errno);
  });
  return write_back_fd_.load();
}

// The program's bytes and no others: what lies between them may be another job's, which writes
// there meanwhile. Runs are written while the group's lock is held, or an older byte could come
// after a newer one; several at a time where there are many, since a file system far away takes
// them so.
int CachedFile::write_back_group(const HeldGroup& held, Till till) {
  constexpr std::size_t kMany = 8;
  std::vector<FileRun> runs;
  FileRun last{};
  bool are_known = true;
  each_dirty_run(segment_, held, [&](const FileRun& run) {
    last = run;
    const auto note = [&] { return runs.push_back(run), 0; };
    are_known = are_known && or_no_memory(note) == 0;
  });
  if (last.length == 0) return 0;
  const int fd = write_back_descriptor();
  if (fd < 0) return -fd;
  raise_to(entry_.real_size, last.end());
  const auto write_one = [&](std::size_t i) { return write_run(segment_, held, runs[i], fd); };
  const auto tell = [&](const FileRun& run) {
    count(counters_.write_backs);
    count(counters_.written_back_bytes, run.length);
    session_.memory().access(run.length);
  };
  int error = 0;
  if (!are_known) {  // for want of memory: as they are found
    runs.clear();
    each_dirty_run(segment_, held, [&](const FileRun& run) {
      if (error == 0) error = write_run(segment_, held, run, fd);
      if (error == 0) tell(run);
    });
  } else if (runs.size() < kMany) {
    for (std::size_t i = 0; i < runs.size() && error == 0; ++i) error = write_one(i);
  } else {
    error = session_.writers().all(runs.size(), std::ref(write_one));
  }
  // Set before the bytes count as clean: a sync in between must know that the file was written.
  entry_.direct_writes.store(kWritten);
  if (error != 0) return error;
  for (const Piece block : held.blocks()) {
    if (block.slot == kNone || segment_.slot(block.slot).dirty_pages == 0) continue;
    till == Till::durable ? mark_written(segment_, block.slot) : mark_clean(segment_, block.slot);
  }
  for (const FileRun& run : runs) tell(run);
  return 0;
}

int CachedFile::write_back_all(Till till) {
  return blocks_.each_group(true,
                            [&](const HeldGroup& held) { return write_back_group(held, till); });
}

int CachedFile::write_back() {
  if (entry_.blocks.load() == 0 || write_fd_ < 0 || entry_.deleted.load() != kKept) return 0;
  return write_back_all(Till::written);
}

int CachedFile::flush() {
  const int fd = write_fd_ >= 0 ? write_fd_ : write_back_fd_.load();
  const int copy = fd >= 0 ? real().dup(fd) : -1;
  if (copy < 0 || real().close(copy) == 0) return 0;
  const int error = errno;
  blocks_.each_slot([this](std::uint32_t slot) { mark_lacking(segment_, slot); });
  return error;
}

int CachedFile::write_back_and_flush() {
  if (write_fd_ < 0 || entry_.deleted.load() != kKept) return 0;
  if (const int error = write_back_all(Till::durable)) return error;
  const std::lock_guard guard(entry_.lock);
  if (const int error = flush()) return error;
  // What a log may have records of stays known till the next checkpoint.
  if (entry_.log.epoch == 0)
    blocks_.each_slot([this](std::uint32_t slot) { mark_unlogged(segment_, slot); });
  return 0;
}

void CachedFile::forget(Forget what) {
  blocks_.each_group(false, [this, what](HeldGroup& held) {
    for (const Piece block : held.blocks()) {
      if (block.slot == kNone) continue;
      const Slot& state = segment_.slot(block.slot);
      const bool needed = what == Forget::written && entry_.deleted.load() != kDiscarded &&
                          (state.dirty_pages != 0 || has_records(state));
      if (needed) {
        forget_clean(segment_, block.slot);
      } else {
        held.give(block.place);
      }
    }
    held.drop_if_empty();
    entry_.evictions.fetch_add(1);
    return 0;
  });
}

}  // namespace nvio
