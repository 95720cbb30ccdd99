// Calls that are not served: the cache writes back and steps aside for the file first.

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "interpose.h"
#include "path_at.h"

namespace nvio {
namespace {

FILE* marked(FILE* stream) {
  mark_stream(stream);
  return stream;
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
