// A job's reads and writes: here, at the node that caches the bytes, or put off.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "../cache/raise_to.h"
#include "../system/no_memory.h"
#include "file_state.h"
#include "job.h"
#include "job_file.h"

namespace nvio {
namespace {

constexpr std::size_t kMostQueued = 16 << 20;  // bytes that may wait

std::span<const std::byte> bytes_of(const char* data, std::size_t length) {
  return {reinterpret_cast<const std::byte*>(data), length};
}

}  // namespace

ssize_t JobFile::read(std::uint64_t offset, void* buffer, std::size_t length) {
  wait_for_overlap(offset, length);
  // What is queued behind the range may make the file longer, and the range a hole in it.
  const bool may_grow = is_queued(offset, INT64_MAX - offset);
  const ssize_t done = read_now(offset, buffer, length);
  if (!may_grow || done < 0 || static_cast<std::size_t>(done) == length) return done;
  wait_for_overlap(offset, INT64_MAX - offset);
  return read_now(offset, buffer, length);
}

ssize_t JobFile::read_now(std::uint64_t offset, void* buffer, std::size_t length) {
  if (nodes_ == 1) return cached_.read(offset, buffer, length);
  if (const int error = broken_.load(); error != 0) {
    errno = error;
    return -1;
  }
  const bool large = length >= cached_.entry().bypass_size;
  const ssize_t done =
      is_routed() ? routed_read(offset, static_cast<char*>(buffer), length, large ? kLarge : 0)
                  : cached_.read_plain(offset, buffer, length);
  if (done >= 0) move_on();
  return done;
}

// What another job has appended counts, too: the MPI would take it for absent, and write over it.
ssize_t JobFile::read_window(std::uint64_t offset, void* buffer, std::size_t length) {
  await_queued();
  if (nodes_ == 1) return cached_.read_window(offset, buffer, length);
  if (broken_.load() != 0 || !is_routed()) return read_now(offset, buffer, length);
  if (const int error = tell_size(cached_.real_file_size())) {
    errno = error;
    return -1;
  }
  const ssize_t done = routed_read(offset, static_cast<char*>(buffer), length, kWindow);
  if (done >= 0) move_on();
  return done;
}

ssize_t JobFile::routed_read(std::uint64_t offset, char* buffer, std::size_t length,
                             std::uint16_t flags) {
  FileEntry& entry = cached_.entry();
  std::uint64_t known = home_ == node_ ? cached_.size() : entry.confirmed.load();
  if (offset + length > known && home_ != node_) known = size();
  if (const int error = broken_.load(); error != 0) {
    errno = error;
    return -1;
  }
  if (offset >= known) return 0;
  length = static_cast<std::size_t>(std::min<std::uint64_t>(length, known - offset));
  for (const FileRun part : Cut<kGroupSize>(offset, length)) {
    const std::uint32_t node = owner(part.offset / kGroupSize);
    const std::uint64_t before = part.offset - offset;
    char* to = buffer + before;
    ssize_t done = 0;
    if (is_here(node)) {
      if (home_ != node_) cached_.know_size(known);
      done = flags == kWindow ? cached_.read_window(part.offset, to, part.length)
                              : cached_.read(part.offset, to, part.length, flags == kLarge);
    } else {
      done = read_at(node, part.offset, to, part.length, flags);
    }
    if (done < 0) return -1;
    if (static_cast<std::uint64_t>(done) < part.length) return static_cast<ssize_t>(before) + done;
  }
  return static_cast<ssize_t>(length);
}

ssize_t JobFile::read_at(std::uint32_t node, std::uint64_t offset, char* buffer, std::size_t length,
                         std::uint16_t flags) {
  Request request{};
  request.operation = Operation::read;
  request.flags = flags;
  request.offset = offset;
  request.length = length;
  request.size = offset + length;
  Reply reply{};
  const std::span room(reinterpret_cast<std::byte*>(buffer), length);
  if (const int error = ask(node, request, reply, {}, room)) {
    errno = error;
    return -1;
  }
  if (node != node_) count(job_.counters().remote_reads);
  return reply.payload;
}

ssize_t JobFile::write(std::uint64_t offset, const void* buffer, std::size_t length) {
  wait_for_overlap(offset, length);
  return write_now(offset, buffer, length);
}

ssize_t JobFile::write_now(std::uint64_t offset, const void* buffer, std::size_t length,
                           std::uint16_t flags) {
  if (nodes_ == 1) return cached_.write(offset, buffer, length);
  const int broken = broken_.load();
  if (broken != 0 || !cached_.can_write_back()) {
    errno = broken != 0 ? broken : EBADF;
    return -1;
  }
  if (length == 0) return 0;
  if (!is_routed()) {
    if (cached_.entry().left.load() != 0) return cached_.write(offset, buffer, length);
    if (const auto done = cached_.write_plain(offset, buffer, length); done) {
      if (*done >= 0) move_on();
      return *done;
    }
  }
  if (cached_.is_large_write(offset, length)) flags |= kLarge;
  const ssize_t done = routed_write(offset, static_cast<const char*>(buffer), length, flags);
  if (done >= 0) move_on();
  return done;
}

ssize_t JobFile::write_window(std::uint64_t offset, const void* buffer, std::size_t length) {
  count(job_.counters().windows);
  wait_for_overlap(offset, length);
  if (nodes_ == 1) return cached_.write_window(offset, buffer, length);
  if (broken_.load() != 0 || length == 0 || !cached_.can_write_back() || !is_routed()) {
    return write_now(offset, buffer, length);
  }
  const ssize_t done = routed_write(offset, static_cast<const char*>(buffer), length, kWindow);
  if (done >= 0) move_on();
  return done;
}

ssize_t JobFile::routed_write(std::uint64_t offset, const char* buffer, std::size_t length,
                              std::uint16_t flags) {
  std::uint64_t at = offset;
  for (const FileRun part : Cut<kGroupSize>(offset, length)) {
    const std::uint32_t node = owner(part.offset / kGroupSize);
    const char* from = buffer + (part.offset - offset);
    ssize_t done = 0;
    if (!is_here(node) || (flags & kQueue) != 0) {
      done = write_at(node, part.offset, from, part.length, flags);
    } else {
      done = flags == kWindow ? cached_.write_window(part.offset, from, part.length)
                              : cached_.write(part.offset, from, part.length, flags == kLarge);
    }
    if (done <= 0) break;
    at += static_cast<std::uint64_t>(done);
    if (at < part.end()) break;
  }
  const int error = errno;
  if (at > offset) {
    if (const int untold = tell_size(at)) {
      errno = untold;
      return -1;
    }
    return static_cast<ssize_t>(at - offset);
  }
  errno = error;
  return -1;
}

// Once it is there: a sync that was answered before knows nothing of it.
void JobFile::note_written(std::uint32_t node) {
  unsynced_[node].store(1);
  unwritten_[node].store(1);
}

ssize_t JobFile::write_at(std::uint32_t node, std::uint64_t offset, const char* buffer,
                          std::size_t length, std::uint16_t flags) {
  Request request{};
  request.operation = Operation::write;
  request.flags = flags;
  request.offset = offset;
  Reply reply{};
  const int error = ask(node, request, reply, bytes_of(buffer, length));
  note_written(node);
  if (error != 0) {
    errno = error;
    return -1;
  }
  if ((flags & kQueue) != 0) handed_.fetch_add(1);
  if (node == home_) raise_to(cached_.entry().confirmed, offset + reply.value);
  if (node != node_) count(job_.counters().remote_writes);
  return static_cast<ssize_t>(reply.value);
}

// --- the pieces of a view -----------------------------------------------------------------------

bool JobFile::takes_runs(Direction direction) const {
  if (broken_.load() != 0) return false;
  if (nodes_ == 1) return cached_.takes_runs(direction);
  // Where all of the bytes are another node's, that one learns how long calls take; it decides.
  const bool may_be_elsewhere = cached_.is_active() && cached_.is_undecided(direction);
  return is_routed() && (may_be_elsewhere || cached_.takes_runs(direction));
}

bool JobFile::is_undecided(Direction direction) const {
  return broken_.load() == 0 && cached_.is_undecided(direction);
}

bool JobFile::reaches(std::uint64_t end) {
  const bool is_known = nodes_ > 1 && home_ != node_ && end <= cached_.entry().confirmed.load();
  return is_known || end <= size();
}

template <typename Byte, typename Transfer, typename Each>
bool JobFile::each_group_of_runs(std::span<const FileRun> runs, Byte* buffer, Transfer&& transfer,
                                 Each&& each) {
  while (!runs.empty()) {
    const std::uint64_t group = runs.front().offset / kGroupSize;
    const std::size_t most = is_routed() ? runs.size() : 0;
    std::size_t count = 0;
    std::uint64_t length = 0;
    for (; count < most; ++count) {
      const FileRun& run = runs[count];
      const bool fits = length + run.length + (count + 1) * sizeof(RunOnWire) <= kMostPayload;
      if (!fits || run.offset / kGroupSize != group || (run.end() - 1) / kGroupSize != group) break;
      length += run.length;
    }
    if (count == 0) {
      length = runs.front().length;
      if (!each(runs.front(), buffer)) return false;
      count = 1;
    } else if (!transfer(owner(group), runs.first(count), buffer, length)) {
      return false;
    }
    buffer += length;
    runs = runs.subspan(count);
  }
  return true;
}

bool JobFile::read_runs(std::span<const FileRun> runs, char* buffer) {
  wait_for_overlap(runs.front().offset, runs.back().end() - runs.front().offset);
  if (nodes_ == 1) return cached_.read_runs(runs, buffer);
  const std::uint64_t end = runs.back().end();
  if (home_ != node_) cached_.know_size(end);  // the caller knows that it is there
  const bool done = each_group_of_runs(
      runs, buffer,
      [&](std::uint32_t node, std::span<const FileRun> some, char* to, std::uint64_t length) {
        return is_here(node) ? cached_.read_runs(some, to) : read_runs_at(node, some, to, length);
      },
      [&](const FileRun& run, char* to) {
        return read_now(run.offset, to, run.length) == static_cast<ssize_t>(run.length);
      });
  if (done) move_on();
  return done;
}

bool JobFile::read_runs_at(std::uint32_t node, std::span<const FileRun> runs, char* buffer,
                           std::uint64_t length) {
  Request request{};
  request.operation = Operation::read;
  request.flags = kRuns;
  request.offset = runs.front().offset;
  request.length = length;
  request.size = runs.back().end();
  Reply reply{};
  const std::span room(reinterpret_cast<std::byte*>(buffer), length);
  if (ask(node, request, reply, runs_payload(request.offset, runs, {}), room) != 0) return false;
  if (node != node_) count(job_.counters().remote_reads);
  return reply.payload == length;
}

bool JobFile::write_runs(std::span<const FileRun> runs, const char* buffer) {
  wait_for_overlap(runs.front().offset, runs.back().end() - runs.front().offset);
  const CachedFile::Undisturbed here(cached_, runs.front().offset, runs.back().end());
  if (!here.is_held()) return false;
  if (nodes_ == 1) return cached_.write_runs(runs, buffer);
  const bool done = each_group_of_runs(
      runs, buffer,
      [&](std::uint32_t node, std::span<const FileRun> some, const char* from,
          std::uint64_t length) {
        return (is_here(node) ? cached_.write_runs(some, from)
                              : write_runs_at(node, some, from, length)) &&
               tell_size(some.back().end()) == 0;
      },
      [&](const FileRun& run, const char* from) {
        return write_now(run.offset, from, run.length) == static_cast<ssize_t>(run.length);
      });
  if (done) move_on();
  return done;
}

bool JobFile::write_runs_at(std::uint32_t node, std::span<const FileRun> runs, const char* buffer,
                            std::uint64_t length) {
  Request request{};
  request.operation = Operation::write;
  request.flags = kRuns;
  request.offset = runs.front().offset;
  request.length = length;
  Reply reply{};
  const int error =
      ask(node, request, reply, runs_payload(request.offset, runs, bytes_of(buffer, length)));
  note_written(node);
  if (error != 0) return false;
  if (node == home_) raise_to(cached_.entry().confirmed, runs.back().end());
  if (node != node_) count(job_.counters().remote_writes);
  return true;
}

// --- queued writes -----------------------------------------------------------------------------

// Null where the process may have no more threads, or memory.
WriteQueue* JobFile::begin_queue() {
  const std::lock_guard guard(queueing_);
  if (queue_ != nullptr) return queue_.get();
  try {
    queue_ = std::make_unique<WriteQueue>(
        [this](const QueuedWrite& queued) {
          const ssize_t done = write_now(queued.offset, queued.data.data(), queued.data.size());
          if (done == static_cast<ssize_t>(queued.data.size())) return 0;
          return done < 0 ? errno : EIO;
        },
        kMostQueued);
  } catch (const std::exception&) {
    return nullptr;
  }
  queued_.store(queue_.get(), std::memory_order_release);
  return queue_.get();
}

ssize_t JobFile::write_later(std::uint64_t offset, const void* buffer, std::size_t length) {
  if (length == 0 || length > kMostQueued || !cached_.can_write_back()) {
    return write(offset, buffer, length);
  }
  const char* bytes = static_cast<const char*>(buffer);
  WriteQueue* queue = queued_.load(std::memory_order_acquire);
  if (queue == nullptr) {
    queue = begin_queue();
    if (queue == nullptr) return write_now(offset, buffer, length);
  }
  const auto add = [&] {
    queue->add({.offset = offset, .data = {bytes, bytes + length}});
    return 0;
  };
  return or_no_memory(add) == 0 ? static_cast<ssize_t>(length) : write(offset, buffer, length);
}

ssize_t JobFile::hand_over(std::uint64_t offset, const void* buffer, std::size_t length) {
  if (nodes_ == 1) return write_later(offset, buffer, length);
  wait_for_overlap(offset, length);
  return write_now(offset, buffer, length, kQueue);
}

bool JobFile::is_queued(std::uint64_t offset, std::size_t length) const {
  WriteQueue* queue = queued_.load(std::memory_order_acquire);
  return queue != nullptr && queue->overlaps(offset, length);
}

void JobFile::wait_for_overlap(std::uint64_t offset, std::size_t length) {
  WriteQueue* queue = queued_.load(std::memory_order_acquire);
  if (queue != nullptr) queue->wait_for(offset, length);
}

int JobFile::drain_queue() {
  WriteQueue* queue = queued_.load(std::memory_order_acquire);
  return queue == nullptr ? 0 : queue->drain();
}

}  // namespace nvio
