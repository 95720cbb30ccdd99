// A file's size and the descriptor's position in it, its attributes, and when it is durable.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "interpose.h"

namespace nvio {
namespace {

int corrected(int result, struct stat* status) {
  if (result == 0 && is_watched() && S_ISREG(status->st_mode)) {
    const int saved = errno;
    if (Hooks()->correct_size(status) != 0) return -1;
    errno = saved;
  }
  return result;
}

}  // namespace
}  // namespace nvio

using nvio::Hooks;
using nvio::is_tracked;

NVIO_EXPORT off64_t lseek64(int fd, off64_t offset, int whence) noexcept {
  if (is_tracked(fd) && whence == SEEK_END) {
    const off64_t target = Hooks()->size(fd) + offset;
    return NEXT(lseek64)(fd, target, SEEK_SET);
  }
  // The cache knows no holes.
  if ((whence == SEEK_DATA || whence == SEEK_HOLE) && nvio::step_aside(fd) != 0) return -1;
  return NEXT(lseek64)(fd, offset, whence);
}
NVIO_EXPORT off_t lseek(int fd, off_t offset, int whence) noexcept {
  return lseek64(fd, offset, whence);
}
NVIO_EXPORT int ftruncate64(int fd, off64_t length) noexcept {
  return is_tracked(fd) ? Hooks()->truncate(fd, length) : NEXT(ftruncate64)(fd, length);
}
NVIO_EXPORT int ftruncate(int fd, off_t length) noexcept { return ftruncate64(fd, length); }
NVIO_EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  if (nvio::step_aside(fd) != 0) return -1;
  return NEXT(fallocate64)(fd, mode, offset, length);
}
NVIO_EXPORT int fallocate(int fd, int mode, off_t offset, off_t length) {
  return fallocate64(fd, mode, offset, length);
}
NVIO_EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t length) {
  if (nvio::step_aside(fd) != 0) return errno;
  return NEXT(posix_fallocate64)(fd, offset, length);
}
NVIO_EXPORT int posix_fallocate(int fd, off_t offset, off_t length) {
  return posix_fallocate64(fd, offset, length);
}
NVIO_EXPORT int fsync(int fd) { return is_tracked(fd) ? Hooks()->sync(fd) : NEXT(fsync)(fd); }
NVIO_EXPORT int fdatasync(int fd) {
  return is_tracked(fd) ? Hooks()->sync(fd) : NEXT(fdatasync)(fd);
}
NVIO_EXPORT int fstat64(int fd, struct stat64* status) noexcept {
  return nvio::corrected(NEXT(fstat64)(fd, status), reinterpret_cast<struct stat*>(status));
}
NVIO_EXPORT int fstat(int fd, struct stat* status) noexcept {
  return fstat64(fd, reinterpret_cast<struct stat64*>(status));
}
NVIO_EXPORT int stat64(const char* path, struct stat64* status) noexcept {
  return nvio::corrected(NEXT(stat64)(path, status), reinterpret_cast<struct stat*>(status));
}
NVIO_EXPORT int stat(const char* path, struct stat* status) noexcept {
  return stat64(path, reinterpret_cast<struct stat64*>(status));
}
NVIO_EXPORT int lstat64(const char* path, struct stat64* status) noexcept {
  return nvio::corrected(NEXT(lstat64)(path, status), reinterpret_cast<struct stat*>(status));
}
NVIO_EXPORT int lstat(const char* path, struct stat* status) noexcept {
  return lstat64(path, reinterpret_cast<struct stat64*>(status));
}
NVIO_EXPORT int fstatat64(int folder, const char* path, struct stat64* status, int flags) noexcept {
  return nvio::corrected(NEXT(fstatat64)(folder, path, status, flags),
                         reinterpret_cast<struct stat*>(status));
}
NVIO_EXPORT int fstatat(int folder, const char* path, struct stat* status, int flags) noexcept {
  return fstatat64(folder, path, reinterpret_cast<struct stat64*>(status), flags);
}
// Programs built against a C library before 2.33 call these.
// NOLINTBEGIN(bugprone-reserved-identifier)
NVIO_EXPORT int __xstat64(int, const char* path, struct stat64* status) {
  return stat64(path, status);
}
NVIO_EXPORT int __xstat(int, const char* path, struct stat* status) { return stat(path, status); }
NVIO_EXPORT int __fxstat64(int, int fd, struct stat64* status) { return fstat64(fd, status); }
NVIO_EXPORT int __fxstat(int, int fd, struct stat* status) { return fstat(fd, status); }
NVIO_EXPORT int __lxstat64(int, const char* path, struct stat64* status) {
  return lstat64(path, status);
}
NVIO_EXPORT int __lxstat(int, const char* path, struct stat* status) { return lstat(path, status); }
NVIO_EXPORT int __fxstatat64(int, int folder, const char* path, struct stat64* status, int flags) {
  return fstatat64(folder, path, status, flags);
}
NVIO_EXPORT int __fxstatat(int, int folder, const char* path, struct stat* status, int flags) {
  return fstatat(folder, path, status, flags);
}
// NOLINTEND(bugprone-reserved-identifier)
NVIO_EXPORT int statx(int folder, const char* path, int flags, unsigned mask,
                      struct statx* status) noexcept {
  const int result = NEXT(statx)(folder, path, flags, mask, status);
  if (result == 0 && nvio::is_watched() && (status->stx_mask & STATX_SIZE) != 0) {
    struct stat plain {};
    if (NEXT(fstatat64)(folder, path, reinterpret_cast<struct stat64*>(&plain), flags & 0xffff) ==
        0) {
      plain.st_size = static_cast<off_t>(status->stx_size);
      if (nvio::corrected(0, &plain) != 0) return -1;
      status->stx_size = static_cast<std::uint64_t>(plain.st_size);
      status->stx_blocks = static_cast<std::uint64_t>(plain.st_blocks);
      status->stx_mtime.tv_sec = plain.st_mtim.tv_sec;
      status->stx_mtime.tv_nsec = static_cast<std::uint32_t>(plain.st_mtim.tv_nsec);
      status->stx_ctime.tv_sec = plain.st_ctim.tv_sec;
      status->stx_ctime.tv_nsec = static_cast<std::uint32_t>(plain.st_ctim.tv_nsec);
    }
  }
  return result;
}
