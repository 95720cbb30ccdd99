// A fetch that takes its time: it has read the file, and is not yet told what.
#pragma once

#include <sys/uio.h>

#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "../posix/real.h"

namespace nvio {

// One at a time.
class HeldFetch {
 public:
  // Calls act() on a thread of its own; returns once that has read the file.
  explicit HeldFetch(std::function<void()> act) : before_(&real()), wrapped_(*before_) {
    the_ = this;
    wrapped_.preadv = hold;
    set_real(&wrapped_);
    fetcher_ = std::thread([act = std::move(act)] {
      is_fetcher_ = true;
      act();
    });
    begun_.get_future().wait();
  }
  HeldFetch(const HeldFetch&) = delete;
  HeldFetch& operator=(const HeldFetch&) = delete;
  ~HeldFetch() {
    end();
    set_real(before_);
  }

  // Lets it go, and waits until act() is through.
  void end() {
    if (!fetcher_.joinable()) return;
    let_go_.set_value();
    fetcher_.join();
  }

 private:
  static ssize_t hold(int fd, const iovec* vectors, int count, off_t offset) {
    const ssize_t got = the_->before_->preadv(fd, vectors, count, offset);
    if (std::exchange(is_fetcher_, false)) {
      the_->begun_.set_value();
      the_->let_go_.get_future().wait();
    }
    return got;
  }

  static inline HeldFetch* the_ = nullptr;
  static inline thread_local bool is_fetcher_ = false;
  const RealPosix* before_;
  RealPosix wrapped_;
  std::promise<void> begun_, let_go_;
  std::thread fetcher_;
};

}  // namespace nvio
