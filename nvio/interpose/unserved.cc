// Calls that are not served: the cache writes back and steps aside for the file first.

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "interpose.h"
#include "path_at.h"

namespace nvio {
namespace {

FILE* marked(FILE* stream) {
  mark_stream(stream);
  return stream;
}

// By these XFS reserves space or frees it, and the kernel for all others; its headers name none.
constexpr unsigned of_space(unsigned number) {
  constexpr unsigned kSizeOfRange = 48;
  return _IOC(_IOC_WRITE, 'X', number, kSizeOfRange);
}

// What stands at an address, unless nothing does: the kernel tells that who asks.
template <typename Value>
bool has_read(const void* address, Value& value) {
  const iovec here{&value, sizeof value};
  const iovec there{const_cast<void*>(address), sizeof value};
  const int saved = errno;
  const ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  const bool is_forbidden = got < 0 && errno != EFAULT;  // some containers have no such call
  errno = saved;
  if (is_forbidden) std::memcpy(&value, address, sizeof value);
  return is_forbidden || got == static_cast<ssize_t>(sizeof value);
}

// For an ioctl that reads or changes the bytes of a file, or asks where they are. -1 with errno
// when that cannot be.
int step_aside_for(int fd, unsigned long request, void* argument) {
  if (!is_served()) return 0;
  switch (static_cast<unsigned>(request)) {  // who has it in an int has widened its sign
    case FICLONE: {
      const auto source = reinterpret_cast<std::intptr_t>(argument);
      if (step_aside(static_cast<int>(source)) != 0) return -1;
      break;
    }
    case FICLONERANGE: {
      file_clone_range range{};
      if (!has_read(argument, range)) return 0;
      if (step_aside(static_cast<int>(range.src_fd)) != 0) return -1;
      break;
    }
    case FIDEDUPERANGE: {
      file_dedupe_range range{};
      if (!has_read(argument, range)) return 0;
      const auto* info = static_cast<const file_dedupe_range*>(argument)->info;
      for (unsigned i = 0; i < range.dest_count; ++i) {
        file_dedupe_range_info one{};
        if (!has_read(info + i, one)) return 0;
        if (step_aside(static_cast<int>(one.dest_fd)) != 0) return -1;
      }
      break;
    }
    case FS_IOC_FIEMAP:
    case of_space(40):
    case of_space(41):
    case of_space(42):
    case of_space(43):
    case of_space(57):
      break;
    default:
      return 0;
  }
  return step_aside(fd);
}

}  // namespace
}  // namespace nvio

NVIO_EXPORT FILE* fopen64(const char* path, const char* mode) {
  if (nvio::step_aside(path) != 0) return nullptr;
  return nvio::marked(NEXT(fopen64)(path, mode));
}
NVIO_EXPORT FILE* fopen(const char* path, const char* mode) { return fopen64(path, mode); }
NVIO_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  if (path != nullptr && nvio::step_aside(path) != 0) return nullptr;
  if (nvio::hand_over(fileno(stream)) != 0) return nullptr;
  return nvio::marked(NEXT(freopen64)(path, mode, stream));
}
NVIO_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return freopen64(path, mode, stream);
}
// The C library reads, writes and closes a stream's descriptor by calls of its own.
NVIO_EXPORT FILE* fdopen(int fd, const char* mode) noexcept {
  if (nvio::hand_over(fd) != 0) return nullptr;
  return nvio::marked(NEXT(fdopen)(fd, mode));
}
// So does this, by the descriptor itself.
NVIO_EXPORT int vdprintf(int fd, const char* format, va_list arguments) {
  if (nvio::step_aside(fd) != 0) return -1;
  return NEXT(vdprintf)(fd, format, arguments);
}
NVIO_EXPORT int dprintf(int fd, const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  const int written = vdprintf(fd, format, rest);
  va_end(rest);
  return written;
}
// What these become under _FORTIFY_SOURCE.
// NOLINTBEGIN(bugprone-reserved-identifier)
NVIO_EXPORT int __vdprintf_chk(int fd, int flag, const char* format, va_list arguments) {
  if (nvio::step_aside(fd) != 0) return -1;
  return NEXT(__vdprintf_chk)(fd, flag, format, arguments);
}
NVIO_EXPORT int __dprintf_chk(int fd, int flag, const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  const int written = __vdprintf_chk(fd, flag, format, rest);
  va_end(rest);
  return written;
}
// NOLINTEND(bugprone-reserved-identifier)
NVIO_EXPORT ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) noexcept {
  if (nvio::step_aside(in) != 0 || nvio::step_aside(out) != 0) return -1;
  return NEXT(sendfile64)(out, in, offset, count);
}
NVIO_EXPORT ssize_t sendfile(int out, int in, off_t* offset, size_t count) noexcept {
  return sendfile64(out, in, offset, count);
}
NVIO_EXPORT ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t length,
                           unsigned flags) {
  if (nvio::step_aside(in) != 0 || nvio::step_aside(out) != 0) return -1;
  return NEXT(splice)(in, in_offset, out, out_offset, length, flags);
}
NVIO_EXPORT ssize_t copy_file_range(int in, off64_t* in_offset, int out, off64_t* out_offset,
                                    size_t length, unsigned flags) {
  if (nvio::step_aside(in) != 0 || nvio::step_aside(out) != 0) return -1;
  return NEXT(copy_file_range)(in, in_offset, out, out_offset, length, flags);
}
// Of all that this does, what reads or changes a file's bytes and blocks.
NVIO_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (nvio::step_aside_for(fd, request, argument) != 0) return -1;
  return NEXT(ioctl)(fd, request, argument);
}
NVIO_EXPORT int truncate64(const char* path, off64_t length) noexcept {
  if (nvio::step_aside(path) != 0) return -1;
  return NEXT(truncate64)(path, length);
}
NVIO_EXPORT int truncate(const char* path, off_t length) noexcept {
  return truncate64(path, length);
}
// A name that goes may be all that a crash leaves to find the file by, and whether the call will
// succeed nobody knows: nothing of the file is only in the store any more when it is tried. Where
// that cannot be, a file is deleted all the same: it may be how the program makes room.
NVIO_EXPORT int unlink(const char* path) noexcept {
  nvio::step_aside(path);
  return NEXT(unlink)(path);
}
NVIO_EXPORT int unlinkat(int folder, const char* path, int flags) noexcept {
  nvio::step_aside(nvio::PathAt(folder, path).c_str());
  return NEXT(unlinkat)(folder, path, flags);
}
NVIO_EXPORT int remove(const char* path) noexcept {
  nvio::step_aside(path);
  return NEXT(remove)(path);
}
NVIO_EXPORT int rename(const char* from, const char* to) noexcept {
  if (nvio::step_aside(from) != 0 || nvio::step_aside(to) != 0) return -1;
  return NEXT(rename)(from, to);
}
NVIO_EXPORT int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                          unsigned flags) noexcept {
  if (nvio::step_aside(nvio::PathAt(from_folder, from).c_str()) != 0 ||
      nvio::step_aside(nvio::PathAt(to_folder, to).c_str()) != 0) {
    return -1;
  }
  return NEXT(renameat2)(from_folder, from, to_folder, to, flags);
}
NVIO_EXPORT int renameat(int from_folder, const char* from, int to_folder,
                         const char* to) noexcept {
  return renameat2(from_folder, from, to_folder, to, 0);
}
