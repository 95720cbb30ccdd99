#include "write_queue.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

namespace nvio {

// The program's signals are for the program's threads.
WriteQueue::WriteQueue(Write write, std::size_t most) : write_(std::move(write)), most_(most) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

WriteQueue::~WriteQueue() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool WriteQueue::add(std::uint64_t offset, const void* data, std::size_t length) {
  if (length > most_) return false;
  const char* bytes = static_cast<const char*>(data);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return bytes_ + length <= most_; });
  waiting_.push_back({offset, {bytes, bytes + length}});
  bytes_ += length;
  const bool was_idle = waiting_.size() == 1;
  lock.unlock();
  if (was_idle) changed_.notify_all();
  return true;
}

bool WriteQueue::overlaps(std::uint64_t offset, std::size_t length) {
  const std::lock_guard guard(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
    return one.offset < offset + length && offset < one.offset + one.data.size();
  });
}

int WriteQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty(); });
  return std::exchange(error_, 0);
}

void WriteQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Waiting& first = waiting_.front();  // a deque keeps it in place while others are added
    lock.unlock();
    const int error = write_(first.offset, first.data.data(), first.data.size());
    lock.lock();
    if (error_ == 0) error_ = error;
    bytes_ -= waiting_.front().data.size();
    waiting_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace nvio
