#include "ahead.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

#include "cached_file.h"
#include "session.h"

namespace nvio {

void Ahead::ask(Session& session, CachedFile& file, std::uint64_t group) {
  const std::uint32_t most = session.settings().fetch_ahead;
  auto& places = session.segment().header().ahead;
  const bool has_place = std::any_of(places, places + most, [](AheadPlace& place) {
    return std::unique_lock(place.lock, std::try_to_lock).owns_lock();
  });
  if (!has_place) return;
  const std::lock_guard guard(mutex_);
  if (stopping_ || asked_.size() + under_way_.size() >= most) return;
  const auto is_same = [&](const Request& other) {
    return other.file == &file && other.group == group;
  };
  if (std::any_of(asked_.begin(), asked_.end(), is_same) ||
      std::any_of(under_way_.begin(), under_way_.end(), is_same)) {
    return;
  }
  if (threads_.size() < asked_.size() + under_way_.size() + 1) begin_thread();
  if (threads_.empty()) return;
  asked_.push_back({&file, group});
  changed_.notify_all();
}

// The program's signals are for the program's threads.
void Ahead::begin_thread() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {
    // The process may have no more of them: those that there are do it.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Ahead::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !asked_.empty(); });
    if (stopping_) return;
    const Request mine = asked_.front();
    asked_.pop_front();
    under_way_.push_back(mine);
    lock.unlock();
    mine.file->fetch_ahead(mine.group);
    lock.lock();
    std::erase_if(under_way_, [&](const Request& other) {
      return other.file == mine.file && other.group == mine.group;
    });
    changed_.notify_all();
  }
}

void Ahead::finish(const CachedFile& file) {
  std::unique_lock lock(mutex_);
  const auto is_of_file = [&](const Request& request) { return request.file == &file; };
  std::erase_if(asked_, is_of_file);
  changed_.wait(lock,
                [&] { return std::none_of(under_way_.begin(), under_way_.end(), is_of_file); });
}

void Ahead::stop() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
    asked_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace nvio
