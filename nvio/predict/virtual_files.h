// Files that hold no bytes and take no real time: what the cache does with them while a recorded
// run is replayed only moves a clock. While one of these objects exists, all of nvio's own I/O in
// this process goes through it; there may be one at a time, and one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "../record/trace_format.h"
#include "../system/clock.h"
#include "../system/real_posix.h"
#include "calibration.h"

namespace nvio {

class VirtualFiles {
 public:
  explicit VirtualFiles(const Costs& costs);
  ~VirtualFiles();
  VirtualFiles(const VirtualFiles&) = delete;
  VirtualFiles& operator=(const VirtualFiles&) = delete;

  // A descriptor of a new file, closed with this object, or -1 with errno.
  int make(std::uint64_t size);

  // The clock, in seconds, that calls are charged to from now on, and how many clients are at it.
  void charge(double& clock, std::uint32_t clients) {
    clock_ = &clock;
    clients_ = clients;
  }
  // What was charged to is over.
  void charge_nobody() { clock_ = &nobody_; }
  // The recorded call that is replayed: what the cache passes on of it takes what it took then.
  void replay(const TraceCall* call) { call_ = call; }
  // Bytes written that were passed on, of those of recorded calls.
  std::uint64_t passed_on_bytes() const { return passed_on_bytes_; }

 private:
  static RealPosix functions();
  static int open(const char* path, int flags, ...);
  static TimePoint now();
  static VirtualFiles* g_the;

  bool is_virtual(int descriptor) const {
    const std::lock_guard one(one_at_a_time_);
    return descriptors_.contains(descriptor);
  }
  ssize_t read(int descriptor, std::uint64_t length, off_t offset, bool is_one);
  ssize_t write(int descriptor, std::uint64_t length, off_t offset, bool is_one);
  bool is_passed_on(TraceKind kind, std::uint64_t offset, std::uint64_t length) const;
  double recorded_seconds(Way way, std::uint64_t length) const;
  void sync();

  // The cache writes back by several threads.
  mutable std::mutex one_at_a_time_;
  const Costs& costs_;
  RealPosix real_;
  RealPosix mine_;
  double* clock_;
  std::uint32_t clients_ = 1;
  double nobody_ = 0;
  const TraceCall* call_ = nullptr;
  std::uint64_t passed_on_bytes_ = 0;
  // Its size is kept here alone: the kernel would refuse one beyond the limits of this process.
  struct File {
    std::uint64_t made;  // its size when it was made
    std::uint64_t size;
  };
  std::map<int, std::shared_ptr<File>> descriptors_;
};

}  // namespace nvio
