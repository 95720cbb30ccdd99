// From the file to the cache: a MiB of it, or a few blocks, by one read.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "../store/slots.h"
#include "../system/real.h"
#include "cached_file.h"

namespace nvio {

// The descriptor that reads into the store's pages at once, without a copy by the kernel; where the
// file system or the store cannot, the usual one. Only a tmpfs has pages that nobody writes out
// meanwhile.
int CachedFile::fetch_descriptor() {
  std::call_once(fetch_fd_opened_, [this] {
    const StoreKind kind = session_.settings().kind;
    if (kind != StoreKind::tmpfs && kind != StoreKind::simulated) return;
    const PathOfDescriptor self(read_fd_);
    fetch_fd_.store(real().open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC, 0));
  });
  const int fd = fetch_fd_.load();
  return fd >= 0 ? fd : read_fd_;
}

// Makes the blocks [first, last] of a group wholly valid by one read of the file. The bucket's
// lock is held throughout: nobody may write these bytes past us meanwhile.
CachedFile::Outcome CachedFile::fetch(HeldGroup& held, std::uint64_t first, std::uint64_t last) {
  // Nothing lies beyond the end of the file: do not cache emptiness.
  const std::uint64_t size = entry_.size.load(std::memory_order_acquire);
  const std::uint64_t base = held.index() * kGroupSize;
  while (last > first && base + last * kBlockSize >= size) --last;

  std::uint64_t taken[kGroupBlocks];
  std::uint64_t count_taken = 0;
  const auto give_back = [&](Outcome outcome) {
    for (std::uint64_t i = 0; i < count_taken; ++i) held.give(taken[i]);
    return outcome;
  };
  for (std::uint64_t place = first; place <= last; ++place) {
    if (held.slot(place) != kNone) continue;
    if (held.take(place) == kNone) return give_back(Outcome::need_room);
    taken[count_taken++] = place;
  }
  // As in write_held: who steps aside counts the blocks after saying so. A late one of ours would
  // keep what a write under way brings to it.
  if (count_taken != 0 && entry_.mode.load() != kActive) return give_back(Outcome::not_served);

  // Into the blocks at once where they are empty, beside them where they hold something already.
  static thread_local std::vector<char> beside;
  iovec vectors[kGroupBlocks];
  bool all_empty = true;
  for (std::uint64_t place = first; place <= last; ++place) {
    const std::uint32_t slot = held.slot(place);
    const bool empty = !segment_.valid(slot).any(0, kBlockSize);
    all_empty = all_empty && empty;
    if (!empty && beside.empty()) {
      try {
        beside.resize(kGroupSize);
      } catch (const std::bad_alloc&) {
        return give_back(Outcome::not_served);
      }
    }
    vectors[place - first] = {empty ? segment_.block(slot) : beside.data() + place * kBlockSize,
                              kBlockSize};
  }
  const int blocks = static_cast<int>(last - first + 1);
  const std::uint64_t wanted = static_cast<std::uint64_t>(blocks) * kBlockSize;
  std::uint64_t done = 0;
  const std::uint64_t start = base + first * kBlockSize;
  if (start < entry_.real_size.load(std::memory_order_acquire)) {
    // Network file systems read on in small requests, one after the other; told beforehand, they
    // send them all at once.
    int fd = all_empty && blocks > 1 ? fetch_descriptor() : read_fd_;
    if (blocks > 1 && fd == read_fd_) {
      posix_fadvise(read_fd_, static_cast<off_t>(start), static_cast<off_t>(wanted),
                    POSIX_FADV_WILLNEED);
    }
    iovec rest[kGroupBlocks];
    while (done < wanted) {
      const auto skip = static_cast<std::uint64_t>(done / kBlockSize);
      std::copy(vectors + skip, vectors + blocks, rest);
      rest[0].iov_base = static_cast<char*>(rest[0].iov_base) + done % kBlockSize;
      rest[0].iov_len -= done % kBlockSize;
      const ssize_t n = real().preadv(fd, rest, blocks - static_cast<int>(skip),
                                      static_cast<off_t>(start + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && fd != read_fd_) {
        fd = read_fd_;  // the last bytes of a file may not be had this way
        continue;
      }
      if (n < 0) return give_back(Outcome::not_served);
      if (n == 0) break;
      done += static_cast<std::uint64_t>(n);
    }
  }
  count(counters_.fetches);
  count(counters_.fetched_bytes, done);
  session_.memory().access(done);
  for (std::uint64_t place = first; place <= last; ++place) {
    const std::uint32_t slot = held.slot(place);
    char* bytes = static_cast<char*>(vectors[place - first].iov_base);
    const std::uint64_t before = (place - first) * kBlockSize;
    const std::uint64_t got = done > before ? std::min(kBlockSize, done - before) : 0;
    std::memset(bytes + got, 0, kBlockSize - got);
    if (bytes != segment_.block(slot)) {
      const Bits valid = segment_.valid(slot);
      for (std::uint64_t a = valid.next_clear(0, kBlockSize); a < kBlockSize;) {
        const std::uint64_t b = valid.next_set(a, kBlockSize);
        std::memcpy(segment_.block(slot) + a, bytes + a, b - a);
        a = valid.next_clear(b, kBlockSize);
      }
    }
    mark_valid(segment_, slot, 0, kBlockSize);
  }
  return Outcome::done;
}

void CachedFile::prefetch(std::uint32_t share, std::uint32_t shares) {
  activate();
  const std::uint64_t size = entry_.size.load();
  if (entry_.mode.load() != kActive || read_fd_ < 0) return;
  const std::uint64_t groups = (size + kGroupSize - 1) / kGroupSize;
  for (std::uint64_t i = groups * share / shares; i < groups * (share + 1) / shares; ++i) {
    if (!prefetch_group(i)) return;
  }
}

bool CachedFile::prefetch_group(std::uint64_t group_index) {
  if (entry_.mode.load() != kActive || read_fd_ < 0) return true;
  HeldGroup held = blocks_.hold(group_index * kGroupSize);
  return fetch(held, 0, kGroupBlocks - 1) == Outcome::done;
}

}  // namespace nvio
