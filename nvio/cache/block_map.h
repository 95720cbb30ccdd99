// Where a file's blocks are: the group that holds a MiB of it, the lock over that group, and the
// slots of its blocks. Whatever goes over a part of a file, or over all that is cached of it, finds
// its blocks here; what is done with them is the caller's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <new>
#include <vector>

#include "../store/slots.h"
#include "file_run.h"

namespace nvio {

// Bytes of a file, cut at the multiples of `size`: each part is a FileRun.
template <std::uint64_t size>
class Cut {
 public:
  Cut(std::uint64_t offset, std::uint64_t length) : begin_{offset, offset + length} {}

  struct Iterator {
    std::uint64_t at, stop;
    FileRun operator*() const { return {at, std::min(size - at % size, stop - at)}; }
    void operator++() { at += (**this).length; }
    bool operator==(std::default_sentinel_t) const { return at >= stop; }
  };
  Iterator begin() const { return begin_; }
  std::default_sentinel_t end() const { return {}; }

 private:
  Iterator begin_;
};

// What of a transfer lies in one block.
struct Piece {
  std::uint64_t offset;       // in the file
  std::uint64_t place;        // of the block in its group
  std::uint64_t begin, stop;  // within the block
  std::uint32_t slot;         // kNone: the block is not cached
  std::uint64_t length() const { return stop - begin; }
};

// A MiB of a file as long as its bucket's lock is held.
class HeldGroup {
 public:
  // With std::try_to_lock: not held where another one holds it.
  template <typename... How>
  HeldGroup(Segment& segment, std::uint32_t file, std::uint64_t index, How... how)
      : segment_(segment),
        file_(file),
        index_(index),
        bucket_(segment.bucket_of(file, index)),
        guard_(bucket_.lock, how...),
        group_(is_held() ? segment.find_group(bucket_, file, index) : kNone) {}

  bool is_held() const { return guard_.owns_lock(); }
  bool exists() const { return group_ != kNone; }  // else none of its blocks is cached
  std::uint64_t index() const { return index_; }
  bool holds(const FileRun& run) const {
    return run.offset / kGroupSize == index_ && (run.end() - 1) / kGroupSize == index_;
  }
  std::uint32_t group() const { return group_; }
  std::uint32_t slot(std::uint64_t place) const {
    return exists() ? std::uint32_t{segment_.group(group_).slot[place]} : kNone;
  }

  // The pieces of bytes that lie in this MiB, in order. A slot is looked up when its turn comes.
  struct Pieces {
    struct Iterator : Cut<kBlockSize>::Iterator {
      const HeldGroup& held;
      Piece operator*() const {
        const FileRun run = Cut<kBlockSize>::Iterator::operator*();
        const std::uint64_t place = at % kGroupSize / kBlockSize;
        const std::uint64_t begin = at % kBlockSize;
        return {at, place, begin, begin + run.length, held.slot(place)};
      }
    };
    Iterator begin() const { return begin_; }
    std::default_sentinel_t end() const { return {}; }

    Iterator begin_;
  };
  Pieces pieces(std::uint64_t offset, std::uint64_t length) const {
    return {{{offset, offset + length}, *this}};
  }
  // Its blocks, each as a piece.
  Pieces blocks() const { return pieces(index_ * kGroupSize, kGroupSize); }

  // Has a block cached that is not: its slot, all of whose bytes are invalid; kNone without room.
  std::uint32_t take(std::uint64_t place) {
    if (!exists()) group_ = segment_.make_group(bucket_, file_, index_);
    const std::uint32_t taken = exists() ? segment_.take_slot() : kNone;
    if (taken == kNone) return kNone;
    segment_.slot(taken).place = static_cast<std::uint8_t>(place);
    segment_.slot(taken).group.store(group_, std::memory_order_relaxed);
    // Counted first: a process that is killed in between must not leave a block uncounted.
    segment_.file(file_).blocks.fetch_add(1);
    segment_.group(group_).slot[place] = taken;
    return taken;
  }
  void give(std::uint64_t place) {
    const std::uint32_t given = slot(place);
    segment_.group(group_).slot[place] = kNone;
    segment_.give_slot(given);
    segment_.file(file_).blocks.fetch_sub(1);
  }
  // The piece's bytes are the program's, or another's where the redo log has a record: a sync logs
  // them.
  void mark_dirty(const Piece& piece) const {
    note_change();
    nvio::mark_dirty(segment_, piece.slot, piece.begin, piece.stop);
  }
  void mark_rewritten(const Piece& piece) const {
    note_change();
    nvio::mark_rewritten(segment_, piece.slot, piece.begin, piece.stop);
  }
  void drop_if_empty() {
    const auto& slots = segment_.group(group_).slot;
    const auto is_free = [](std::uint32_t slot) { return slot == kNone; };
    if (std::all_of(std::begin(slots), std::end(slots), is_free)) {
      segment_.drop_group(bucket_, group_);
      group_ = kNone;
    }
  }

 private:
  // Before it is there, or who is killed in between would leave it unknown; and not again and
  // again, since all ranks read the line that it lies on.
  void note_change() const {
    std::atomic<std::uint32_t>& changes = segment_.file(file_).changes;
    if (changes.load() != kChanged) changes.store(kChanged);
  }

  Segment& segment_;
  std::uint32_t file_;
  std::uint64_t index_;
  Bucket& bucket_;
  std::unique_lock<SharedLock> guard_;
  std::uint32_t group_;  // or kNone
};

class BlockMap {
 public:
  BlockMap(Segment& segment, std::uint32_t file) : segment_(segment), file_(file) {}

  // The MiB that the offset lies in.
  template <typename... How>
  HeldGroup hold(std::uint64_t offset, How... how) const {
    return {segment_, file_, offset / kGroupSize, how...};
  }

  // Calls visit(held) for each group of the file, in order if memory can be had; it returns 0 or an
  // errno value, and the first of those is returned. With `share`, groups that another process is
  // at are left for a second round.
  template <typename Visit>
  int each_group(bool share, Visit&& visit) const {
    int first_error = 0;
    const auto visit_held = [&](HeldGroup&& held) {
      const int error = held.exists() ? visit(held) : 0;
      if (first_error == 0) first_error = error;
      return held.is_held();
    };
    std::vector<std::uint64_t> left;
    try {
      left = offsets();
    } catch (const std::bad_alloc&) {
      // In the table's order, then, with nothing to remember.
      for (std::uint32_t i = 0; i < segment_.used_groups(); ++i) {
        if (segment_.file_of(i) == file_) visit_held(hold(segment_.group(i).index * kGroupSize));
      }
      return first_error;
    }
    if (share) {
      std::erase_if(left, [&](std::uint64_t at) { return visit_held(hold(at, std::try_to_lock)); });
    }
    for (const std::uint64_t at : left) visit_held(hold(at));
    return first_error;
  }
  // Calls visit(slot) for each block of the file that is cached.
  template <typename Visit>
  void each_slot(Visit&& visit) const {
    each_group(false, [&](const HeldGroup& held) {
      for (const Piece block : held.blocks()) {
        if (block.slot != kNone) visit(block.slot);
      }
      return 0;
    });
  }

 private:
  // Of the file's groups, ascending.
  std::vector<std::uint64_t> offsets() const {
    std::vector<std::uint64_t> found;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // Segment::make_group says why
    for (std::uint32_t i = 0; i < segment_.used_groups(); ++i) {
      if (segment_.file_of(i) == file_) found.push_back(segment_.group(i).index * kGroupSize);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  Segment& segment_;
  std::uint32_t file_;
};

}  // namespace nvio
