#include "writers.h"

#include <unistd.h>

#include <exception>

#include "../system/all_signals_blocked.h"
#include "../system/no_memory.h"

namespace nvio {

Writers::~Writers() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Writers::begin() {
  constexpr std::size_t kThreads = 3;
  if (!threads_.empty()) return;
  const AllSignalsBlocked blocked;
  try {
    while (threads_.size() < kThreads) threads_.emplace_back([this] { run(); });
  } catch (const std::exception&) {
    // The process may have no more of them, or no memory: those that there are do it.
  }
}

int Writers::all(std::size_t count, const std::function<int(std::size_t)>& write) {
  const std::unique_lock use(in_use_, std::try_to_lock);
  // In the child of a vfork they would end with what it executes, and be waited for by its parent.
  if (!use.owns_lock() || getpid() != process_) {
    int error = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const int failed = write(i);
      if (error == 0) error = failed;
    }
    return error;
  }
  begin();
  std::unique_lock lock(mutex_);
  write_ = &write;
  count_ = count;
  next_ = 0;
  error_ = 0;
  changed_.notify_all();
  take_part(lock);
  changed_.wait(lock, [this] { return under_way_ == 0; });
  write_ = nullptr;
  return error_;
}

void Writers::take_part(std::unique_lock<std::mutex>& lock) {
  while (next_ < count_) {
    const std::size_t mine = next_++;
    ++under_way_;
    lock.unlock();
    const int error = or_no_memory([&] { return (*write_)(mine); });
    lock.lock();
    if (error_ == 0) error_ = error;
    --under_way_;
  }
  if (under_way_ == 0) changed_.notify_all();
}

void Writers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || (write_ != nullptr && next_ < count_); });
    if (stopping_) return;
    take_part(lock);
  }
}

}  // namespace nvio
