#include "workers.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "../system/real.h"

namespace nvio {

Workers::Workers(unsigned threads) : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  real().close(event_);
}

void Workers::add(std::function<void()> work, std::function<void()> done) {
  {
    const std::lock_guard guard(mutex_);
    waiting_.push_back({std::move(work), std::move(done)});
  }
  wake_.notify_one();
}

void Workers::collect() {
  eventfd_t count = 0;
  eventfd_read(event_, &count);
  std::vector<std::function<void()>> done;
  {
    const std::lock_guard guard(mutex_);
    done.swap(done_);
  }
  for (const auto& one : done) one();
}

void Workers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Task task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task.work();
    lock.lock();
    done_.push_back(std::move(task.done));
    eventfd_write(event_, 1);
  }
}

}  // namespace nvio
