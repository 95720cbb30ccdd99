// From the cache to the file: what is dirty, as few and as long writes as it pays to make.
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "../posix/real.h"
#include "each_group.h"
#include "raise_to.h"
#include "slots.h"

namespace nvio {
namespace {

// A run of dirty bytes of a group. Offsets within the group.
struct Run {
  std::uint64_t begin, end;
};

std::vector<Run> dirty_runs(Segment& segment, const Group& group) {
  std::vector<Run> runs;
  for (std::uint64_t place = 0; place < kGroupBlocks; ++place) {
    const std::uint32_t slot = group.slot[place];
    if (slot == kNone || segment.slot(slot).dirty_pages == 0) continue;
    segment.dirty(slot).each_run(0, kBlockSize, [&](std::uint64_t a, std::uint64_t b) {
      const Run run{place * kBlockSize + a, place * kBlockSize + b};
      if (!runs.empty() && runs.back().end == run.begin) {
        runs.back().end = run.end;
      } else {
        runs.push_back(run);
      }
    });
  }
  return runs;
}

// Copies a run's bytes together from the blocks it lies in.
void gather(Segment& segment, const Group& group, const Run& run, char* target) {
  for (std::uint64_t at = run.begin; at < run.end;) {
    const std::uint64_t stop = std::min(run.end, (at / kBlockSize + 1) * kBlockSize);
    const char* block = segment.block(group.slot[at / kBlockSize]);
    std::memcpy(target + (at - run.begin), block + at % kBlockSize, stop - at);
    at = stop;
  }
}

bool write_run(Segment& segment, const Group& group, const Run& run, int fd) {
  iovec vectors[kGroupBlocks];
  int used = 0;
  for (std::uint64_t at = run.begin; at < run.end;) {
    const std::uint64_t stop = std::min(run.end, (at / kBlockSize + 1) * kBlockSize);
    char* block = segment.block(group.slot[at / kBlockSize]);
    vectors[used++] = {block + at % kBlockSize, stop - at};
    at = stop;
  }
  const std::uint64_t offset = group.index * kGroupSize + run.begin;
  return write_vectors_fully(fd, vectors, used, static_cast<off_t>(offset)) >= 0;
}

}  // namespace

// What others of the job wrote is written by whoever steps aside or closes last, also where the
// program opened the file for reading only. Below 0: minus the errno value.
int CachedFile::write_back_descriptor() {
  if (write_fd_ >= 0) return write_fd_;
  std::call_once(write_back_fd_opened_, [this] {
    const std::string self = "/proc/self/fd/" + std::to_string(read_fd_);
    const int fd = real().open(self.c_str(), O_WRONLY | O_CLOEXEC);
    write_back_fd_.store(fd >= 0 ? fd : -errno);
  });
  return write_back_fd_.load();
}

// Many small runs cost a call each; reading the whole span, laying the runs over it and writing it
// costs two long transfers. The latter is safe because a MiB belongs to one node, and nobody else
// of the job can write into it while its lock is held.
int CachedFile::write_back_group(std::uint32_t group_index) {
  const Group& group = segment_.group(group_index);
  const std::vector<Run> runs = dirty_runs(segment_, group);
  if (runs.empty()) return 0;
  const int fd = write_back_descriptor();
  if (fd < 0) return -fd;
  const Run span{runs.front().begin, runs.back().end};
  const std::uint64_t base = group.index * kGroupSize;

  constexpr double kBytesPerSecond = 500e6;
  constexpr double kUnknownCall = 300e-6;
  const double measured = entry_.write_seconds.load(std::memory_order_relaxed);
  const double call = entry_.write_samples.load() > 0 ? measured : kUnknownCall;
  const double in_pieces = static_cast<double>(runs.size()) * call;
  const double as_one = 2 * (static_cast<double>(span.end - span.begin) / kBytesPerSecond + call);

  bool done = true;
  if (runs.size() > 1 && read_fd_ >= 0 && as_one < in_pieces) {
    static thread_local std::vector<char> whole;
    whole.resize(kGroupSize);
    const std::uint64_t length = span.end - span.begin;
    ssize_t got = 0;
    if (base + span.begin < entry_.real_size.load()) {
      got = read_fully(read_fd_, whole.data(), length, static_cast<off_t>(base + span.begin));
    }
    if (got >= 0) {
      std::memset(whole.data() + got, 0, length - static_cast<std::uint64_t>(got));
      for (const Run& run : runs) gather(segment_, group, run, &whole[run.begin - span.begin]);
      done = write_fully(fd, whole.data(), length, static_cast<off_t>(base + span.begin)) >= 0;
    } else {
      done = false;
    }
  } else {
    for (const Run& run : runs) done = done && write_run(segment_, group, run, fd);
  }
  // Set before the bytes count as clean: a sync in between must know that the file was written.
  const int error = errno;
  entry_.direct_writes.store(kWritten);
  if (!done) return error != 0 ? error : EIO;
  raise_to(entry_.real_size, base + span.end);
  for (const std::uint32_t slot : group.slot) {
    if (slot != kNone && segment_.slot(slot).dirty_pages != 0) mark_clean(segment_, slot);
  }
  count(counters_.write_backs, runs.size());
  for (const Run& run : runs) count(counters_.written_back_bytes, run.end - run.begin);
  return 0;
}

int CachedFile::write_back_all() {
  return each_group(true, [this](Bucket&, std::uint32_t group) { return write_back_group(group); });
}

int CachedFile::write_back() {
  if (entry_.blocks.load() == 0 || write_fd_ < 0 || entry_.deleted.load() != 0) return 0;
  return write_back_all();
}

void CachedFile::forget(Forget what) {
  each_group(false, [this, what](Bucket& bucket, std::uint32_t group) {
    bool empty = true;
    for (auto& slot : segment_.group(group).slot) {
      if (slot == kNone) continue;
      const Slot& state = segment_.slot(slot);
      const bool needed = what == Forget::written && entry_.deleted.load() == 0 &&
                          (state.dirty_pages != 0 || has_records(state));
      if (needed) {
        empty = false;
        continue;
      }
      const std::uint32_t given = slot;
      slot = kNone;
      segment_.give_slot(given);
      entry_.blocks.fetch_sub(1);
    }
    if (empty) segment_.drop_group(bucket, group);
    entry_.evictions.fetch_add(1);
    return 0;
  });
}

}  // namespace nvio
