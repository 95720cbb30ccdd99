// The POSIX calls by which MPI libraries (and programs) reach a file: on a descriptor that the
// cache tracks they are served by it, on any other they go on to the C library at once.
//
// All variants of a call come down to a few hooks (contract.h). What cannot be served (a mapping,
// sendfile, stdio) makes the cache write back and step aside for that file first.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "../entry/loader.h"

#define NVIO_EXPORT extern "C" __attribute__((visibility("default")))

// The next definition of the call we stand in for. Resolved at first use: other preloaded
// libraries may call us before our constructor would have run.
#define NEXT(name)                                                                         \
  ([]() {                                                                                  \
    static const auto next = reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name)); \
    return next;                                                                           \
  }())

namespace nvio {
namespace {

template <typename T>
void resolve(T& slot, const char* name) {
  slot = reinterpret_cast<T>(dlsym(RTLD_NEXT, name));
}

RealPosix resolve_all() {
  RealPosix real{};
  resolve(real.pread, "pread64");
  resolve(real.pwrite, "pwrite64");
  resolve(real.preadv, "preadv64");
  resolve(real.pwritev, "pwritev64");
  resolve(real.ftruncate, "ftruncate64");
  resolve(real.fsync, "fsync");
  resolve(real.fdatasync, "fdatasync");
  resolve(real.open, "open64");
  resolve(real.close, "close");
  resolve(real.dup, "dup");
  resolve(real.unlink, "unlink");
  resolve(real.fstat, "fstat64");
  resolve(real.stat, "stat64");
  return real;
}

int noticed(int fd) {
  if (fd >= 0 && g_hooks != nullptr) {
    const int saved = errno;
    g_hooks->opened(fd);
    errno = saved;
  }
  return fd;
}

int corrected(int result, struct stat* status) {
  if (result == 0 && g_hooks != nullptr && S_ISREG(status->st_mode)) {
    const int saved = errno;
    g_hooks->correct_size(status);
    errno = saved;
  }
  return result;
}

// The third argument of `open`, which is there only where a file may be made.
mode_t mode_argument(int flags, va_list rest) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

// A transfer at the descriptor's own offset: the kernel keeps the offset, so that dup'ed and
// inherited descriptors go on sharing it.
template <typename Transfer>
ssize_t at_offset(int fd, bool append, Transfer&& transfer) {
  const off_t offset = append ? g_hooks->size(fd) : NEXT(lseek64)(fd, 0, SEEK_CUR);
  if (offset < 0) return -1;
  const ssize_t done = transfer(offset);
  if (done > 0 && NEXT(lseek64)(fd, offset + done, SEEK_SET) < 0) return -1;
  return done;
}

bool appends(int fd) {
  const int flags = NEXT(fcntl)(fd, F_GETFL);
  return flags >= 0 && (flags & O_APPEND) != 0;
}

template <typename One>
ssize_t each_vector(const iovec* vectors, int count, off_t offset, One&& one) {
  if (count < 0 || count > IOV_MAX) {
    errno = EINVAL;
    return -1;
  }
  ssize_t total = 0;
  for (int i = 0; i < count; ++i) {
    if (vectors[i].iov_len == 0) continue;
    const ssize_t done = one(vectors[i].iov_base, vectors[i].iov_len, offset + total);
    if (done < 0) return total > 0 ? total : -1;
    total += done;
    if (static_cast<std::size_t>(done) < vectors[i].iov_len) break;
  }
  return total;
}

ssize_t vector_read(int fd, const iovec* vectors, int count, off_t offset) {
  if (g_hooks->read_vector != nullptr) return g_hooks->read_vector(fd, vectors, count, offset);
  return each_vector(vectors, count, offset, [fd](void* base, std::size_t length, off_t at) {
    return g_hooks->read_at(fd, base, length, at);
  });
}

ssize_t vector_write(int fd, const iovec* vectors, int count, off_t offset) {
  if (g_hooks->write_vector != nullptr) return g_hooks->write_vector(fd, vectors, count, offset);
  return each_vector(vectors, count, offset, [fd](void* base, std::size_t length, off_t at) {
    return g_hooks->write_at(fd, base, length, at);
  });
}

// glibc keeps an asynchronous call's outcome in the control block itself, and aio_error,
// aio_return and aio_suspend only look there: a call served at once needs no table of ours.
bool serve_aio(aiocb* block, int opcode) {
  if (!is_tracked(block->aio_fildes)) return false;
  if (!g_hooks->serves_asynchronous) {
    g_hooks->step_aside(block->aio_fildes);
    return false;
  }
  if (block->aio_sigevent.sigev_notify != SIGEV_NONE &&
      block->aio_sigevent.sigev_notify != SIGEV_SIGNAL) {
    g_hooks->step_aside(block->aio_fildes);
    return false;
  }
  if (block->aio_sigevent.sigev_notify == SIGEV_SIGNAL && block->aio_sigevent.sigev_signo != 0) {
    g_hooks->step_aside(block->aio_fildes);
    return false;
  }
  ssize_t done = 0;
  void* buffer = const_cast<void*>(block->aio_buf);
  if (opcode == LIO_READ) {
    done = g_hooks->read_at(block->aio_fildes, buffer, block->aio_nbytes, block->aio_offset);
  } else if (opcode == LIO_WRITE) {
    done = g_hooks->write_at(block->aio_fildes, buffer, block->aio_nbytes, block->aio_offset);
  } else {
    done = g_hooks->sync(block->aio_fildes);
  }
  block->__error_code = done < 0 ? errno : 0;
  block->__return_value = done;
  return true;
}

}  // namespace

const RealPosix& real_posix() {
  static const RealPosix real = resolve_all();
  return real;
}

}  // namespace nvio

using nvio::appends;
using nvio::at_offset;
using nvio::g_hooks;
using nvio::is_tracked;

// The C library's own names for some variants are reserved to it, and are just what must be
// interposed; and the analyser takes a va_list that va_start set for one that nobody did.
// NOLINTBEGIN(bugprone-reserved-identifier,clang-analyzer-valist.Uninitialized)

// --- transfers -------------------------------------------------------------------------------

NVIO_EXPORT ssize_t pread64(int fd, void* buffer, size_t length, off64_t offset) {
  if (is_tracked(fd)) return g_hooks->read_at(fd, buffer, length, offset);
  return NEXT(pread64)(fd, buffer, length, offset);
}
NVIO_EXPORT ssize_t pread(int fd, void* buffer, size_t length, off_t offset) {
  return pread64(fd, buffer, length, offset);
}
NVIO_EXPORT ssize_t __pread64_chk(int fd, void* buffer, size_t length, off64_t offset,
                                  size_t room) {
  if (length > room) abort();  // what glibc's own check does
  return pread64(fd, buffer, length, offset);
}
NVIO_EXPORT ssize_t __pread_chk(int fd, void* buffer, size_t length, off_t offset, size_t room) {
  return __pread64_chk(fd, buffer, length, offset, room);
}
NVIO_EXPORT ssize_t pwrite64(int fd, const void* buffer, size_t length, off64_t offset) {
  if (is_tracked(fd)) return g_hooks->write_at(fd, buffer, length, offset);
  return NEXT(pwrite64)(fd, buffer, length, offset);
}
NVIO_EXPORT ssize_t pwrite(int fd, const void* buffer, size_t length, off_t offset) {
  return pwrite64(fd, buffer, length, offset);
}
NVIO_EXPORT ssize_t read(int fd, void* buffer, size_t length) {
  if (!is_tracked(fd)) return NEXT(read)(fd, buffer, length);
  return at_offset(fd, false, [=](off_t at) { return g_hooks->read_at(fd, buffer, length, at); });
}
NVIO_EXPORT ssize_t __read_chk(int fd, void* buffer, size_t length, size_t room) {
  if (length > room) abort();
  return read(fd, buffer, length);
}
NVIO_EXPORT ssize_t write(int fd, const void* buffer, size_t length) {
  if (!is_tracked(fd)) return NEXT(write)(fd, buffer, length);
  return at_offset(fd, appends(fd),
                   [=](off_t at) { return g_hooks->write_at(fd, buffer, length, at); });
}
NVIO_EXPORT ssize_t readv(int fd, const iovec* vectors, int count) {
  if (!is_tracked(fd)) return NEXT(readv)(fd, vectors, count);
  return at_offset(fd, false, [=](off_t at) { return nvio::vector_read(fd, vectors, count, at); });
}
NVIO_EXPORT ssize_t writev(int fd, const iovec* vectors, int count) {
  if (!is_tracked(fd)) return NEXT(writev)(fd, vectors, count);
  return at_offset(fd, appends(fd),
                   [=](off_t at) { return nvio::vector_write(fd, vectors, count, at); });
}
NVIO_EXPORT ssize_t preadv64(int fd, const iovec* vectors, int count, off64_t offset) {
  if (is_tracked(fd)) return nvio::vector_read(fd, vectors, count, offset);
  return NEXT(preadv64)(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t preadv(int fd, const iovec* vectors, int count, off_t offset) {
  return preadv64(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t pwritev64(int fd, const iovec* vectors, int count, off64_t offset) {
  if (is_tracked(fd)) return nvio::vector_write(fd, vectors, count, offset);
  return NEXT(pwritev64)(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t pwritev(int fd, const iovec* vectors, int count, off_t offset) {
  return pwritev64(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t preadv64v2(int fd, const iovec* vectors, int count, off64_t offset, int flags) {
  if (!is_tracked(fd)) return NEXT(preadv64v2)(fd, vectors, count, offset, flags);
  return offset == -1 ? readv(fd, vectors, count) : preadv64(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  return preadv64v2(fd, vectors, count, offset, flags);
}
NVIO_EXPORT ssize_t pwritev64v2(int fd, const iovec* vectors, int count, off64_t offset,
                                int flags) {
  if (!is_tracked(fd)) return NEXT(pwritev64v2)(fd, vectors, count, offset, flags);
  return offset == -1 ? writev(fd, vectors, count) : pwritev64(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t pwritev2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  return pwritev64v2(fd, vectors, count, offset, flags);
}

// --- asynchronous transfers ------------------------------------------------------------------

NVIO_EXPORT int aio_read64(aiocb64* block) {
  return nvio::serve_aio(reinterpret_cast<aiocb*>(block), LIO_READ) ? 0 : NEXT(aio_read64)(block);
}
NVIO_EXPORT int aio_read(aiocb* block) { return aio_read64(reinterpret_cast<aiocb64*>(block)); }
NVIO_EXPORT int aio_write64(aiocb64* block) {
  return nvio::serve_aio(reinterpret_cast<aiocb*>(block), LIO_WRITE) ? 0 : NEXT(aio_write64)(block);
}
NVIO_EXPORT int aio_write(aiocb* block) { return aio_write64(reinterpret_cast<aiocb64*>(block)); }
NVIO_EXPORT int aio_fsync64(int operation, aiocb64* block) {
  if (nvio::serve_aio(reinterpret_cast<aiocb*>(block), LIO_NOP)) return 0;
  return NEXT(aio_fsync64)(operation, block);
}
NVIO_EXPORT int aio_fsync(int operation, aiocb* block) {
  return aio_fsync64(operation, reinterpret_cast<aiocb64*>(block));
}
NVIO_EXPORT int lio_listio64(int mode, aiocb64* const list[], int count, sigevent* event) {
  bool any = false;
  for (int i = 0; i < count; ++i)
    any = any || (list[i] != nullptr && is_tracked(list[i]->aio_fildes));
  if (!any) return NEXT(lio_listio64)(mode, list, count, event);
  // The entries of other files go to the C library one by one, and are waited for together.
  bool failed = false;
  for (int i = 0; i < count; ++i) {
    if (list[i] == nullptr || list[i]->aio_lio_opcode == LIO_NOP) continue;
    const bool is_read = list[i]->aio_lio_opcode == LIO_READ;
    if ((is_read ? aio_read64(list[i]) : aio_write64(list[i])) != 0) failed = true;
  }
  for (int i = 0; mode == LIO_WAIT && i < count; ++i) {
    if (list[i] == nullptr || list[i]->aio_lio_opcode == LIO_NOP) continue;
    const aiocb64* one[] = {list[i]};
    while (aio_error64(list[i]) == EINPROGRESS) aio_suspend64(one, 1, nullptr);
    if (aio_error64(list[i]) != 0) failed = true;
  }
  if (failed) errno = EIO;
  return failed ? -1 : 0;
}
NVIO_EXPORT int lio_listio(int mode, aiocb* const list[], int count, sigevent* event) {
  return lio_listio64(mode, reinterpret_cast<aiocb64* const*>(list), count, event);
}

// --- position, size, durability --------------------------------------------------------------

NVIO_EXPORT off64_t lseek64(int fd, off64_t offset, int whence) noexcept {
  if (is_tracked(fd) && whence == SEEK_END) {
    const off64_t target = g_hooks->size(fd) + offset;
    return NEXT(lseek64)(fd, target, SEEK_SET);
  }
  return NEXT(lseek64)(fd, offset, whence);
}
NVIO_EXPORT off_t lseek(int fd, off_t offset, int whence) noexcept {
  return lseek64(fd, offset, whence);
}
NVIO_EXPORT int ftruncate64(int fd, off64_t length) noexcept {
  return is_tracked(fd) ? g_hooks->truncate(fd, length) : NEXT(ftruncate64)(fd, length);
}
NVIO_EXPORT int ftruncate(int fd, off_t length) noexcept { return ftruncate64(fd, length); }
NVIO_EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  if (is_tracked(fd)) g_hooks->step_aside(fd);
  return NEXT(fallocate64)(fd, mode, offset, length);
}
NVIO_EXPORT int fallocate(int fd, int mode, off_t offset, off_t length) {
  return fallocate64(fd, mode, offset, length);
}
NVIO_EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t length) {
  if (is_tracked(fd)) g_hooks->step_aside(fd);
  return NEXT(posix_fallocate64)(fd, offset, length);
}
NVIO_EXPORT int posix_fallocate(int fd, off_t offset, off_t length) {
  return posix_fallocate64(fd, offset, length);
}
NVIO_EXPORT int fsync(int fd) { return is_tracked(fd) ? g_hooks->sync(fd) : NEXT(fsync)(fd); }
NVIO_EXPORT int fdatasync(int fd) {
  return is_tracked(fd) ? g_hooks->sync(fd) : NEXT(fdatasync)(fd);
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
NVIO_EXPORT int statx(int folder, const char* path, int flags, unsigned mask,
                      struct statx* status) noexcept {
  const int result = NEXT(statx)(folder, path, flags, mask, status);
  if (result == 0 && g_hooks != nullptr && (mask & STATX_SIZE) != 0) {
    struct stat plain {};
    if (NEXT(fstatat64)(folder, path, reinterpret_cast<struct stat64*>(&plain), flags & 0xffff) ==
        0) {
      plain.st_size = static_cast<off_t>(status->stx_size);
      nvio::corrected(0, &plain);
      status->stx_size = static_cast<std::uint64_t>(plain.st_size);
    }
  }
  return result;
}

// --- opening and closing ---------------------------------------------------------------------

NVIO_EXPORT int openat64(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = nvio::mode_argument(flags, rest);
  va_end(rest);
  // O_TRUNC empties the file under the cache's feet: what the cache holds must go first.
  if (g_hooks != nullptr && (flags & O_TRUNC) != 0) g_hooks->step_aside_path(path);
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
  const bool written_back = !is_tracked(fd) || g_hooks->closing(fd) == 0;
  const int error = errno;
  const int result = NEXT(close)(fd);
  if (written_back) return result;
  errno = error;
  return -1;
}
NVIO_EXPORT int dup(int fd) noexcept {
  const int copy = NEXT(dup)(fd);
  if (copy >= 0 && is_tracked(fd)) g_hooks->duplicated(fd, copy);
  return copy;
}
NVIO_EXPORT int dup2(int fd, int target) noexcept {
  if (fd != target && is_tracked(target)) g_hooks->closing(target);
  const int copy = NEXT(dup2)(fd, target);
  if (copy >= 0 && copy != fd && is_tracked(fd)) g_hooks->duplicated(fd, copy);
  return copy;
}
NVIO_EXPORT int dup3(int fd, int target, int flags) noexcept {
  if (fd != target && is_tracked(target)) g_hooks->closing(target);
  const int copy = NEXT(dup3)(fd, target, flags);
  if (copy >= 0 && is_tracked(fd)) g_hooks->duplicated(fd, copy);
  return copy;
}
NVIO_EXPORT int fcntl64(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  const int result = NEXT(fcntl64)(fd, command, argument);
  if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC) && is_tracked(fd)) {
    g_hooks->duplicated(fd, result);
  }
  return result;
}
NVIO_EXPORT int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  return fcntl64(fd, command, argument);
}

// --- calls that are not served: the cache steps aside first -----------------------------------

NVIO_EXPORT FILE* fopen64(const char* path, const char* mode) {
  if (g_hooks != nullptr) g_hooks->step_aside_path(path);
  return NEXT(fopen64)(path, mode);
}
NVIO_EXPORT FILE* fopen(const char* path, const char* mode) { return fopen64(path, mode); }
NVIO_EXPORT FILE* fdopen(int fd, const char* mode) noexcept {
  if (is_tracked(fd)) g_hooks->step_aside(fd);
  return NEXT(fdopen)(fd, mode);
}
NVIO_EXPORT void* mmap64(void* address, size_t length, int protection, int flags, int fd,
                         off64_t offset) noexcept {
  if (is_tracked(fd)) g_hooks->step_aside(fd);
  return NEXT(mmap64)(address, length, protection, flags, fd, offset);
}
NVIO_EXPORT void* mmap(void* address, size_t length, int protection, int flags, int fd,
                       off_t offset) noexcept {
  return mmap64(address, length, protection, flags, fd, offset);
}
NVIO_EXPORT ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) noexcept {
  if (is_tracked(in)) g_hooks->step_aside(in);
  if (is_tracked(out)) g_hooks->step_aside(out);
  return NEXT(sendfile64)(out, in, offset, count);
}
NVIO_EXPORT ssize_t sendfile(int out, int in, off_t* offset, size_t count) noexcept {
  return sendfile64(out, in, offset, count);
}
NVIO_EXPORT ssize_t copy_file_range(int in, off64_t* in_offset, int out, off64_t* out_offset,
                                    size_t length, unsigned flags) {
  if (is_tracked(in)) g_hooks->step_aside(in);
  if (is_tracked(out)) g_hooks->step_aside(out);
  return NEXT(copy_file_range)(in, in_offset, out, out_offset, length, flags);
}
NVIO_EXPORT int truncate64(const char* path, off64_t length) noexcept {
  if (g_hooks != nullptr) g_hooks->step_aside_path(path);
  return NEXT(truncate64)(path, length);
}
NVIO_EXPORT int truncate(const char* path, off_t length) noexcept {
  return truncate64(path, length);
}
NVIO_EXPORT int unlink(const char* path) noexcept {
  if (g_hooks != nullptr) g_hooks->unlinking(path, nullptr);
  return NEXT(unlink)(path);
}
NVIO_EXPORT int remove(const char* path) noexcept {
  if (g_hooks != nullptr) g_hooks->unlinking(path, nullptr);
  return NEXT(remove)(path);
}
NVIO_EXPORT int rename(const char* from, const char* to) noexcept {
  if (g_hooks != nullptr) g_hooks->unlinking(from, to);
  return NEXT(rename)(from, to);
}

// NOLINTEND(bugprone-reserved-identifier,clang-analyzer-valist.Uninitialized)
