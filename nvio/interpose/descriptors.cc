// Where descriptors come from, and how they go.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "interpose.h"
#include "path_at.h"

namespace nvio {
namespace {

int noticed(int fd) {
  unmark_stream(fd);
  if (fd < 0 || !is_watched()) return fd;
  int error = errno;
  if (Hooks()->opened(fd) != 0) {
    error = errno;
    NEXT(close)(fd);
    fd = -1;
  }
  errno = error;
  return fd;
}

// The third argument of `open`, which is there only where a file may be made.
mode_t mode_argument(int flags, va_list rest) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

// The same for all descriptors from `first` to `last`.
int closing_all(unsigned first, unsigned last) {
  if (!is_served()) return 0;
  int error = 0;
  for (unsigned number = first; number <= last && number < kMaxDescriptors; ++number) {
    if (const int each = closing(static_cast<int>(number)); each != 0) error = each;
  }
  return error;
}

// `copy` stands for the same file as `fd` now, whatever had its number before.
int copied(int fd, int copy) {
  if (copy == fd || copy < 0) return copy;
  closing(copy);
  if (is_tracked(fd) && !is_of_stream(copy)) Hooks()->duplicated(fd, copy);
  // What a shell was started with and redirects something to: it has not been opened here.
  if (is_watched() && Hooks()->serves_nothing()) Hooks()->opened(copy);
  return copy;
}

// Before `copy` stands for the file of `fd`: what a stream writes there is not seen.
int let_stream_have(int fd, int copy) { return is_of_stream(copy) ? step_aside(fd) : 0; }

// A copy under a number that was free: a stream that had it is gone.
int copied_anew(int fd, int copy) {
  unmark_stream(copy);
  if (let_stream_have(fd, copy) == 0) return copied(fd, copy);
  const int error = errno;
  NEXT(close)(copy);
  errno = error;
  return -1;
}

// What a call that closes returns.
int told(int result, int error) {
  if (error == 0) return result;
  errno = error;
  return -1;
}

}  // namespace
}  // namespace nvio

// The analyser takes a va_list that va_start set for one that nobody did.
// NOLINTBEGIN(bugprone-reserved-identifier,clang-analyzer-valist.Uninitialized)

NVIO_EXPORT int openat64(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = nvio::mode_argument(flags, rest);
  va_end(rest);
  // O_TRUNC empties the file under the cache's feet: what the cache holds must go first.
  if ((flags & O_TRUNC) != 0 && nvio::step_aside(nvio::PathAt(folder, path).c_str()) != 0) {
    return -1;
  }
  return nvio::noticed(NEXT(openat64)(folder, path, flags, mode));
}
NVIO_EXPORT int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = nvio::mode_argument(flags, rest);
  va_end(rest);
  return openat64(folder, path, flags, mode);
}
NVIO_EXPORT int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = nvio::mode_argument(flags, rest);
  va_end(rest);
  return openat64(AT_FDCWD, path, flags, mode);
}
NVIO_EXPORT int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = nvio::mode_argument(flags, rest);
  va_end(rest);
  return openat64(AT_FDCWD, path, flags, mode);
}
// What `open` becomes under _FORTIFY_SOURCE when it has no mode.
NVIO_EXPORT int __open_2(const char* path, int flags) { return open64(path, flags); }
NVIO_EXPORT int __open64_2(const char* path, int flags) { return open64(path, flags); }
NVIO_EXPORT int __openat_2(int folder, const char* path, int flags) {
  return openat64(folder, path, flags);
}
NVIO_EXPORT int __openat64_2(int folder, const char* path, int flags) {
  return openat64(folder, path, flags);
}
NVIO_EXPORT int creat64(const char* path, mode_t mode) {
  return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
NVIO_EXPORT int creat(const char* path, mode_t mode) { return creat64(path, mode); }
NVIO_EXPORT int close(int fd) {
  const int error = nvio::closing(fd);
  return nvio::told(NEXT(close)(fd), error);
}
NVIO_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  // What the kernel refuses closes nothing: it says so as well of no descriptor at all.
  const bool closes = (static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) == 0 && first <= last &&
                      NEXT(close_range)(UINT_MAX, UINT_MAX, flags) == 0;
  const int error = closes ? nvio::closing_all(first, last) : 0;
  return nvio::told(NEXT(close_range)(first, last, flags), error);
}
NVIO_EXPORT void closefrom(int first) noexcept {
  nvio::closing_all(static_cast<unsigned>(std::max(first, 0)), UINT_MAX);
  NEXT(closefrom)(first);
}
// What a stream still has to write goes to the file itself.
NVIO_EXPORT int fclose(FILE* stream) {
  const int fd = fileno(stream);
  nvio::unmark_stream(fd);
  const int error = nvio::let_go(fd);
  return nvio::told(NEXT(fclose)(stream), error);
}
NVIO_EXPORT int dup(int fd) noexcept { return nvio::copied_anew(fd, NEXT(dup)(fd)); }
NVIO_EXPORT int dup2(int fd, int target) noexcept {
  if (nvio::let_stream_have(fd, target) != 0) return -1;
  return nvio::copied(fd, NEXT(dup2)(fd, target));
}
NVIO_EXPORT int dup3(int fd, int target, int flags) noexcept {
  if (nvio::let_stream_have(fd, target) != 0) return -1;
  return nvio::copied(fd, NEXT(dup3)(fd, target, flags));
}
NVIO_EXPORT int fcntl64(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  const std::intptr_t flags = command == F_SETFL ? reinterpret_cast<std::intptr_t>(argument) : 0;
  const bool locks_opening = command == F_OFD_SETLK || command == F_OFD_SETLKW;
  if (locks_opening || command == F_SETLK || command == F_SETLKW) nvio::expect_locks(fd);
  const bool changes = (flags & (O_APPEND | O_DIRECT)) != 0 || locks_opening;
  if (changes && nvio::stand_alone(fd) != 0) return -1;
  if ((flags & O_APPEND) != 0 && nvio::hand_over(fd) != 0) return -1;
  const int result = NEXT(fcntl64)(fd, command, argument);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? nvio::copied_anew(fd, result) : result;
}
// A lock of the opening lasts until all of its descriptors are closed: also the cache's own.
NVIO_EXPORT int flock(int fd, int operation) noexcept {
  return nvio::stand_alone(fd) != 0 ? -1 : NEXT(flock)(fd, operation);
}
NVIO_EXPORT int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  return fcntl64(fd, command, argument);
}

// NOLINTEND(bugprone-reserved-identifier,clang-analyzer-valist.Uninitialized)
