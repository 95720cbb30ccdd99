#include "virtual_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "../system/real.h"

namespace nvio {

VirtualFiles* VirtualFiles::g_the = nullptr;

VirtualFiles::VirtualFiles(const Costs& costs)
    : costs_(costs), real_(real()), mine_(functions()), clock_(&nobody_) {
  g_the = this;
  set_real(&mine_);
  g_clock = &VirtualFiles::now;
}

VirtualFiles::~VirtualFiles() {
  // Through our own functions till the last: the sessions on these files are gone by now.
  static RealPosix before;
  before = real_;
  for (const auto& [descriptor, file] : descriptors_) before.close(descriptor);
  set_real(&before);
  g_clock = std::chrono::steady_clock::now;
  g_the = nullptr;
}

TimePoint VirtualFiles::now() {
  // From an hour on: the cache takes a time of zero for none.
  constexpr double kStart = 3600;
  const std::lock_guard one(g_the->one_at_a_time_);
  return TimePoint(std::chrono::nanoseconds(
      static_cast<std::int64_t>((kStart + *g_the->clock_) * kNanoseconds)));
}

int VirtualFiles::make(std::uint64_t size) {
  const int descriptor = memfd_create("nvio-replay", MFD_CLOEXEC);
  if (descriptor >= 0) descriptors_[descriptor] = std::make_shared<File>(File{size, size});
  return descriptor;
}

bool VirtualFiles::is_passed_on(TraceKind kind, std::uint64_t offset, std::uint64_t length) const {
  return call_ != nullptr && call_->kind == kind && call_->length != 0 && offset >= call_->offset &&
         offset + length <= call_->offset + call_->length;
}

// Of a part of the recorded call.
double VirtualFiles::recorded_seconds(Way way, std::uint64_t length) const {
  const double share = static_cast<double>(length) / static_cast<double>(call_->length);
  return share * static_cast<double>(call_->duration) / kNanoseconds *
         costs_.drift(way, call_->length, clients_);
}

ssize_t VirtualFiles::read(int descriptor, std::uint64_t length, off_t offset, bool is_one) {
  const std::lock_guard one(one_at_a_time_);
  const File& file = *descriptors_.at(descriptor);
  const auto from = static_cast<std::uint64_t>(offset);
  const std::uint64_t done = from >= file.size ? 0 : std::min(length, file.size - from);
  if (is_one && is_passed_on(TraceKind::read, from, length)) {
    *clock_ += recorded_seconds(Way::read, length);
  } else {
    const bool is_fresh = from >= file.made;
    *clock_ += costs_.transfer(is_fresh ? Way::fresh_read : Way::read, done, clients_);
  }
  return static_cast<ssize_t>(done);
}

ssize_t VirtualFiles::write(int descriptor, std::uint64_t length, off_t offset, bool is_one) {
  const std::lock_guard one(one_at_a_time_);
  const auto from = static_cast<std::uint64_t>(offset);
  if (is_one && is_passed_on(TraceKind::write, from, length)) {
    *clock_ += recorded_seconds(Way::write, length);
    passed_on_bytes_ += length;
  } else {
    *clock_ += costs_.transfer(Way::write, length, clients_);
  }
  File& file = *descriptors_.at(descriptor);
  file.size = std::max(file.size, from + length);
  return static_cast<ssize_t>(length);
}

void VirtualFiles::sync() {
  const std::lock_guard one(one_at_a_time_);
  const bool recorded =
      call_ != nullptr && (call_->kind == TraceKind::sync || call_->kind == TraceKind::flush);
  *clock_ += recorded ? static_cast<double>(call_->duration) / kNanoseconds : costs_.sync();
}

int VirtualFiles::open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  // The analyser takes a va_list that va_start set for one that nobody did.
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized)
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  constexpr char kSelf[] = "/proc/self/fd/";
  if (std::strncmp(path, kSelf, sizeof kSelf - 1) == 0) {
    const int descriptor = std::atoi(path + sizeof kSelf - 1);
    if (g_the->is_virtual(descriptor)) return g_the->mine_.dup(descriptor);
  }
  return g_the->real_.open(path, flags, mode);
}

RealPosix VirtualFiles::functions() {
  RealPosix mine = real();
  mine.pread = [](int fd, void* buffer, std::size_t length, off_t offset) -> ssize_t {
    if (!g_the->is_virtual(fd)) return g_the->real_.pread(fd, buffer, length, offset);
    return g_the->read(fd, length, offset, true);
  };
  mine.pwrite = [](int fd, const void* buffer, std::size_t length, off_t offset) -> ssize_t {
    if (!g_the->is_virtual(fd)) return g_the->real_.pwrite(fd, buffer, length, offset);
    return g_the->write(fd, length, offset, true);
  };
  // Vectors are the cache's own: fetches and write-backs.
  mine.preadv = [](int fd, const iovec* vectors, int count, off_t offset) -> ssize_t {
    if (!g_the->is_virtual(fd)) return g_the->real_.preadv(fd, vectors, count, offset);
    return g_the->read(fd, total_of(vectors, count), offset, false);
  };
  mine.pwritev = [](int fd, const iovec* vectors, int count, off_t offset) -> ssize_t {
    if (!g_the->is_virtual(fd)) return g_the->real_.pwritev(fd, vectors, count, offset);
    return g_the->write(fd, total_of(vectors, count), offset, false);
  };
  mine.fstat = [](int fd, struct stat* status) {
    const int failed = g_the->real_.fstat(fd, status);
    const std::lock_guard one(g_the->one_at_a_time_);
    const auto known = g_the->descriptors_.find(fd);
    if (failed == 0 && known != g_the->descriptors_.end()) {
      status->st_size = static_cast<off_t>(known->second->size);
    }
    return failed;
  };
  mine.ftruncate = [](int fd, off_t length) {
    if (!g_the->is_virtual(fd)) return g_the->real_.ftruncate(fd, length);
    const std::lock_guard one(g_the->one_at_a_time_);
    g_the->descriptors_.at(fd)->size = static_cast<std::uint64_t>(length);
    return 0;
  };
  mine.fsync = [](int fd) {
    if (!g_the->is_virtual(fd)) return g_the->real_.fsync(fd);
    g_the->sync();
    return 0;
  };
  mine.fdatasync = [](int fd) {
    if (!g_the->is_virtual(fd)) return g_the->real_.fdatasync(fd);
    g_the->sync();
    return 0;
  };
  mine.open = &VirtualFiles::open;
  mine.dup = [](int fd) {
    const int copy = g_the->real_.dup(fd);
    const std::lock_guard one(g_the->one_at_a_time_);
    const auto known = g_the->descriptors_.find(fd);
    if (copy >= 0 && known != g_the->descriptors_.end()) g_the->descriptors_[copy] = known->second;
    return copy;
  };
  mine.close = [](int fd) {
    const std::lock_guard one(g_the->one_at_a_time_);
    g_the->descriptors_.erase(fd);
    return g_the->real_.close(fd);
  };
  return mine;
}

}  // namespace nvio
