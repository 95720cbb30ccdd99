#include "write_queue.h"

#include <utility>

#include "../system/all_signals_blocked.h"
#include "../system/no_memory.h"

namespace nvio {
namespace {

// Many short writes take more than their bytes.
std::size_t room_of(const QueuedWrite& write) { return sizeof write + write.data.size(); }

bool touches(const QueuedWrite& write, std::uint64_t offset, std::uint64_t length,
             const void* file) {
  return write.file == file && write.offset < offset + length &&
         offset < write.offset + write.data.size();
}

}  // namespace

WriteQueue::WriteQueue(Write write, std::size_t most) : write_(std::move(write)), most_(most) {
  const AllSignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

WriteQueue::~WriteQueue() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool WriteQueue::has_room(const QueuedWrite& write) const {
  return waiting_.empty() || bytes_ + room_of(write) <= most_;
}

void WriteQueue::put(QueuedWrite write, std::unique_lock<std::mutex>& lock) {
  waiting_.push_back(std::move(write));
  bytes_ += room_of(waiting_.back());
  const bool was_idle = waiting_.size() == 1;
  lock.unlock();
  if (was_idle) changed_.notify_all();
}

void WriteQueue::add(QueuedWrite write) {
  std::unique_lock lock(mutex_);
  ++wanting_;
  changed_.wait(lock, [&] { return has_room(write); });
  --wanting_;
  put(std::move(write), lock);
}

bool WriteQueue::try_add(QueuedWrite write) {
  std::unique_lock lock(mutex_);
  if (wanting_ != 0 || !has_room(write)) return false;
  put(std::move(write), lock);
  return true;
}

std::size_t WriteQueue::until(std::uint64_t offset, std::uint64_t length, const void* file) const {
  std::size_t count = waiting_.size();
  while (count > 0 && !touches(waiting_[count - 1], offset, length, file)) --count;
  return count;
}

bool WriteQueue::overlaps(std::uint64_t offset, std::uint64_t length, const void* file) {
  const std::lock_guard guard(mutex_);
  return until(offset, length, file) > 0;
}

void WriteQueue::wait_for(std::uint64_t offset, std::uint64_t length, const void* file) {
  std::unique_lock lock(mutex_);
  const std::uint64_t last = done_ + until(offset, length, file);
  changed_.wait(lock, [&] { return done_ >= last; });
}

int WriteQueue::drain(const void* file, std::uint64_t owner) {
  wait_for(0, UINT64_MAX, file);
  const std::lock_guard guard(mutex_);
  const auto told = errors_.extract({file, owner});
  return told.empty() ? std::exchange(whosoever_, 0) : told.mapped();
}

void WriteQueue::note(int error, const QueuedWrite& write) {
  const auto add = [&] { return errors_.try_emplace({write.file, write.owner}, error), 0; };
  if (or_no_memory(add) != 0) whosoever_ = error;
}

void WriteQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const QueuedWrite& first = waiting_.front();  // stays in place while others are added
    lock.unlock();
    const int error = or_no_memory([&] { return write_(first); });
    lock.lock();
    if (error != 0) note(error, first);
    bytes_ -= room_of(first);
    waiting_.pop_front();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace nvio
