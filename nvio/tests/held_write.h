// A write of the file that takes its time: it stays in the C library's place until it is let go.
#pragma once

#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "../system/real.h"

namespace nvio {

// One at a time.
class HeldWrite {
 public:
  // Calls act() on a thread of its own; returns once that is in a write.
  explicit HeldWrite(std::function<void()> act) : before_(&real()), wrapped_(*before_) {
    the_ = this;
    wrapped_.pwrite = hold;
    set_real(&wrapped_);
    writer_ = std::thread([act = std::move(act)] {
      is_writer_ = true;
      act();
    });
    begun_.get_future().wait();
  }
  HeldWrite(const HeldWrite&) = delete;
  HeldWrite& operator=(const HeldWrite&) = delete;
  ~HeldWrite() {
    end();
    set_real(before_);
  }

  // Lets it go, and waits until act() is through.
  void end() {
    if (!writer_.joinable()) return;
    let_go_.set_value();
    writer_.join();
  }

 private:
  static ssize_t hold(int fd, const void* data, std::size_t length, off_t offset) {
    if (std::exchange(is_writer_, false)) {
      the_->begun_.set_value();
      the_->let_go_.get_future().wait();
    }
    return the_->before_->pwrite(fd, data, length, offset);
  }

  static inline HeldWrite* the_ = nullptr;
  static inline thread_local bool is_writer_ = false;
  const RealPosix* before_;
  RealPosix wrapped_;
  std::promise<void> begun_, let_go_;
  std::thread writer_;
};

}  // namespace nvio
