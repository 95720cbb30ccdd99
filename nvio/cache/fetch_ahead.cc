// From the file to the cache beside the program: a MiB is read into slots that no group names yet,
// and no lock is held that others need. Who reads or writes meanwhile waits for nothing; what he
// touched, or wrote back, he bars from being kept, under the bucket's lock: it would be older.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "../posix/real.h"
#include "cached_file.h"
#include "slots.h"

namespace nvio {
namespace {

// Slots that are this thread's alone: what is left of them is given back at the end.
class OwnSlots {
 public:
  explicit OwnSlots(Segment& segment) : segment_(segment) { slots_.fill(kNone); }
  ~OwnSlots() {
    for (const std::uint32_t slot : slots_) {
      if (slot != kNone) segment_.give_slot(slot);
    }
  }
  OwnSlots(const OwnSlots&) = delete;
  OwnSlots& operator=(const OwnSlots&) = delete;

  bool take(std::uint64_t count, Session& session) {
    for (std::uint64_t i = 0; i < count; ++i) {
      slots_[i] = segment_.take_slot();
      if (slots_[i] == kNone && session.drop_clean()) slots_[i] = segment_.take_slot();
      if (slots_[i] == kNone) return false;
      // Else it would seem to be of the group whose number the list of free slots had there.
      segment_.slot(slots_[i]).group.store(kNone, std::memory_order_relaxed);
    }
    return true;
  }
  std::uint32_t& operator[](std::uint64_t place) { return slots_[place]; }

 private:
  Segment& segment_;
  std::array<std::uint32_t, kGroupBlocks> slots_{};
};

bool is_mostly_there(const Slot& slot) {
  constexpr int kMost = 8;  // pages, half of the block's
  return std::popcount(std::uint16_t{slot.valid_pages}) >= kMost;
}

// Whether who announced that fetch is still at it.
bool is_under_way(Segment& segment, std::uint64_t ticket) {
  if (ticket == 0) return false;
  AheadPlace& place = segment.header().ahead[(ticket & 0xFF) - 1];
  if (place.turn.load() != ticket >> 8) return false;
  return !std::unique_lock(place.lock, std::try_to_lock).owns_lock();
}

}  // namespace

void Group::bar(std::uint64_t begin, std::uint64_t end) {
  if (ahead == 0) return;
  const std::uint64_t base = index * kGroupSize;
  for (std::uint64_t at = begin - base; at < end - base;) {
    const std::uint64_t stop = std::min(end - base, (at / kBlockSize + 1) * kBlockSize);
    const std::uint64_t first = at / kBlockSize * kBlockSize;
    barred[at / kBlockSize] |= pages_touched(at - first, stop - first);
    at = stop;
  }
}

// False where there is nothing to be fetched, or another one is at it.
bool CachedFile::announce_ahead(std::uint64_t group_index, std::uint64_t ticket) {
  Bucket& bucket = segment_.bucket_of(index_, group_index);
  const std::lock_guard guard(bucket.lock);
  if (entry_.aside.load() != 0 || entry_.mode.load() != kActive) return false;
  const std::uint32_t made = segment_.make_group(bucket, index_, group_index);
  if (made == kNone) return false;
  Group& group = segment_.group(made);
  if (is_under_way(segment_, group.ahead)) return false;
  // Who asked may have read for so long that another one has fetched it meanwhile.
  const std::uint64_t size = entry_.size.load(std::memory_order_acquire);
  bool lacks = false;
  for (std::uint64_t i = 0; i < kGroupBlocks && !lacks; ++i) {
    if (group_index * kGroupSize + i * kBlockSize >= size) break;
    lacks = group.slot[i] == kNone || !is_mostly_there(segment_.slot(group.slot[i]));
  }
  if (!lacks) return false;
  for (auto& pages : group.barred) pages = 0;
  group.ahead = ticket;
  return true;
}

bool CachedFile::fetch_ahead(std::uint64_t group_index) {
  AheadPlace* const places = segment_.header().ahead;
  std::unique_lock<SharedLock> held;
  std::uint32_t place = 0;
  for (; place < session_.settings().fetch_ahead && !held; ++place) {
    held = std::unique_lock(places[place].lock, std::try_to_lock);
  }
  const std::uint64_t base = group_index * kGroupSize;
  const std::uint64_t size = entry_.size.load(std::memory_order_acquire);
  if (!held || read_fd_ < 0 || base >= size) return false;
  const std::uint64_t ticket = std::uint64_t{places[place - 1].turn.fetch_add(1) + 1} << 8 | place;
  const std::uint64_t blocks = std::min(kGroupBlocks, (size - base + kBlockSize - 1) / kBlockSize);
  OwnSlots slots(segment_);
  if (!slots.take(blocks, session_) || !announce_ahead(group_index, ticket)) return false;

  const TimePoint start = clock_now();
  entry_.fetching.fetch_add(1, std::memory_order_relaxed);
  iovec vectors[kGroupBlocks];
  for (std::uint64_t i = 0; i < blocks; ++i) vectors[i] = {segment_.block(slots[i]), kBlockSize};
  const ssize_t got = read_blocks(vectors, blocks, base, true);
  entry_.fetching.fetch_sub(1, std::memory_order_relaxed);
  const std::chrono::duration<double> passed = clock_now() - start;
  const std::uint64_t done = got < 0 ? 0 : static_cast<std::uint64_t>(got);
  std::uint64_t kept = 0;
  {
    Bucket& bucket = segment_.bucket_of(index_, group_index);
    const std::lock_guard guard(bucket.lock);
    const std::uint32_t group = segment_.find_group(bucket, index_, group_index);
    // Forgotten, truncated or fetched by another one since; or its caller may write past the cache
    // by now, without a lock.
    if (group != kNone && segment_.group(group).ahead == ticket) {
      for (std::uint64_t i = 0; i < blocks && got >= 0; ++i) {
        const std::uint64_t there =
            std::clamp<std::uint64_t>(done, i * kBlockSize, (i + 1) * kBlockSize);
        std::memset(segment_.block(slots[i]) + (there - i * kBlockSize), 0,
                    (i + 1) * kBlockSize - there);
        kept += keep_ahead(group, i, slots[i]);
      }
      segment_.group(group).ahead = 0;
    }
  }
  count(counters_.fetches);
  count(counters_.fetches_ahead);
  count(counters_.fetched_bytes, done);
  count(counters_.ahead_dropped_bytes, blocks * kBlockSize - kept);
  session_.memory().access(done);
  if (got >= 0) session_.ledger().spend(note_fetch(entry_, passed.count()));
  return kept != 0;
}

// Of what was fetched into a slot of our own, keeps what the block lacks and nobody has barred: the
// slot itself where the group has none there. Returns the bytes kept.
std::uint64_t CachedFile::keep_ahead(std::uint32_t group, std::uint64_t place,
                                     std::uint32_t& fetched) {
  Group& owner = segment_.group(group);
  const auto pages = static_cast<std::uint16_t>(~owner.barred[place]);
  if (pages == 0 || entry_.mode.load() != kActive) return 0;
  std::uint64_t kept = 0;
  if (owner.slot[place] == kNone) {
    Slot& slot = segment_.slot(fetched);
    slot.place = static_cast<std::uint8_t>(place);
    slot.group.store(group, std::memory_order_relaxed);
    each_page_run(pages, [&](std::uint64_t from, std::uint64_t to) {
      mark_valid(segment_, fetched, from, to);
      kept += to - from;
    });
    entry_.blocks.fetch_add(1);
    owner.slot[place] = std::exchange(fetched, kNone);
    // As in write_group: who leaves the file says so and then counts its blocks.
    if (entry_.mode.load() == kActive) return kept;
    fetched = owner.slot[place];
    owner.slot[place] = kNone;
    entry_.blocks.fetch_sub(1);
    return 0;
  }
  const std::uint32_t known = owner.slot[place];
  const Bits valid = segment_.valid(known);
  each_page_run(pages, [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t a = valid.next_clear(from, to); a < to;) {
      const std::uint64_t b = valid.next_set(a, to);
      std::memcpy(segment_.block(known) + a, segment_.block(fetched) + a, b - a);
      mark_valid(segment_, known, a, b);
      kept += b - a;
      a = valid.next_clear(b, to);
    }
  });
  return kept;
}

bool CachedFile::fill_hole(Group& group, std::uint64_t place, std::uint64_t begin,
                           std::uint64_t stop) {
  const std::uint32_t slot = group.slot[place];
  if (!is_mostly_there(segment_.slot(slot))) return false;
  const std::uint64_t offset = group.index * kGroupSize + place * kBlockSize + begin;
  static thread_local std::vector<char> beside;
  beside.assign(stop - begin, 0);
  if (offset < entry_.real_size.load(std::memory_order_acquire) &&
      read_real(offset, beside.data(), stop - begin) < 0) {
    return false;
  }
  group.bar(offset, offset + (stop - begin));
  const Bits valid = segment_.valid(slot);
  for (std::uint64_t a = valid.next_clear(begin, stop); a < stop;) {
    const std::uint64_t b = valid.next_set(a, stop);
    std::memcpy(segment_.block(slot) + a, beside.data() + (a - begin), b - a);
    mark_valid(segment_, slot, a, b);
    a = valid.next_clear(b, stop);
  }
  return true;
}

}  // namespace nvio
