// Reads and writes, at an offset of their own or at the descriptor's.

#include <fcntl.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "interpose.h"

namespace nvio {
namespace {

constexpr int kOffsetLocks = 64;
pthread_mutex_t g_offset_locks[kOffsetLocks];

// Again in a fork's child: whoever held one of them is not there.
void make_offset_locks() {
  for (pthread_mutex_t& lock : g_offset_locks) pthread_mutex_init(&lock, nullptr);
}

// Held while a file is read or written at its descriptors' offsets: as from the kernel, no two
// threads get the same one.
class OffsetLock {
 public:
  explicit OffsetLock(int file) : lock_(g_offset_locks[file % kOffsetLocks]) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] {
      make_offset_locks();
      pthread_atfork(nullptr, nullptr, make_offset_locks);
    });
    pthread_mutex_lock(&lock_);
  }
  ~OffsetLock() { pthread_mutex_unlock(&lock_); }
  OffsetLock(const OffsetLock&) = delete;
  OffsetLock& operator=(const OffsetLock&) = delete;

 private:
  pthread_mutex_t& lock_;
};

// A transfer at the descriptor's own offset: the kernel keeps the offset, so that dup'ed and
// inherited descriptors go on sharing it. Once the file is left to itself, so is this: a forked
// child, on whose account it may have been, knows no lock of ours.
template <typename Transfer, typename Plain>
ssize_t at_offset(int fd, Transfer&& transfer, Plain&& plain) {
  const Hooks hooks;
  const int file = hooks->file_number(fd);
  if (file < 0) return plain();
  const OffsetLock lock(file);
  if (hooks->file_number(fd) < 0) return plain();  // left meanwhile
  const off_t offset = NEXT(lseek64)(fd, 0, SEEK_CUR);
  if (offset < 0) return -1;
  const ssize_t done = transfer(offset);
  if (done > 0 && NEXT(lseek64)(fd, offset + done, SEEK_SET) < 0) return -1;
  return done;
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
  if (Hooks()->read_vector != nullptr) return Hooks()->read_vector(fd, vectors, count, offset);
  return each_vector(vectors, count, offset, [fd](void* base, std::size_t length, off_t at) {
    return Hooks()->read_at(fd, base, length, at);
  });
}

ssize_t vector_write(int fd, const iovec* vectors, int count, off_t offset) {
  if (Hooks()->write_vector != nullptr) return Hooks()->write_vector(fd, vectors, count, offset);
  return each_vector(vectors, count, offset, [fd](void* base, std::size_t length, off_t at) {
    return Hooks()->write_at(fd, base, length, at);
  });
}

// Whether a transfer is served. As the kernel's, it is where a thread that was cancelled ends; once
// it has begun it is done.
bool serves(int fd) {
  if (!is_tracked(fd)) return false;
  pthread_testcancel();
  return true;
}

}  // namespace
}  // namespace nvio

using nvio::at_offset;
using nvio::Hooks;
using nvio::is_tracked;
using nvio::serves;

// The C library's own names for some variants are reserved to it, and are just what must be
// interposed.
// NOLINTBEGIN(bugprone-reserved-identifier)

NVIO_EXPORT ssize_t pread64(int fd, void* buffer, size_t length, off64_t offset) {
  if (serves(fd)) return Hooks()->read_at(fd, buffer, length, offset);
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
  if (serves(fd)) return Hooks()->write_at(fd, buffer, length, offset);
  return NEXT(pwrite64)(fd, buffer, length, offset);
}
NVIO_EXPORT ssize_t pwrite(int fd, const void* buffer, size_t length, off_t offset) {
  return pwrite64(fd, buffer, length, offset);
}
NVIO_EXPORT ssize_t read(int fd, void* buffer, size_t length) {
  const auto plain = [=] { return NEXT(read)(fd, buffer, length); };
  if (!serves(fd)) return plain();
  return at_offset(
      fd, [=](off_t at) { return Hooks()->read_at(fd, buffer, length, at); }, plain);
}
NVIO_EXPORT ssize_t __read_chk(int fd, void* buffer, size_t length, size_t room) {
  if (length > room) abort();
  return read(fd, buffer, length);
}
NVIO_EXPORT ssize_t write(int fd, const void* buffer, size_t length) {
  const auto plain = [=] { return NEXT(write)(fd, buffer, length); };
  if (!serves(fd)) return plain();
  return at_offset(
      fd, [=](off_t at) { return Hooks()->write_at(fd, buffer, length, at); }, plain);
}
NVIO_EXPORT ssize_t readv(int fd, const iovec* vectors, int count) {
  const auto plain = [=] { return NEXT(readv)(fd, vectors, count); };
  if (!serves(fd)) return plain();
  return at_offset(
      fd, [=](off_t at) { return nvio::vector_read(fd, vectors, count, at); }, plain);
}
NVIO_EXPORT ssize_t writev(int fd, const iovec* vectors, int count) {
  const auto plain = [=] { return NEXT(writev)(fd, vectors, count); };
  if (!serves(fd)) return plain();
  return at_offset(
      fd, [=](off_t at) { return nvio::vector_write(fd, vectors, count, at); }, plain);
}
NVIO_EXPORT ssize_t preadv64(int fd, const iovec* vectors, int count, off64_t offset) {
  if (serves(fd)) return nvio::vector_read(fd, vectors, count, offset);
  return NEXT(preadv64)(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t preadv(int fd, const iovec* vectors, int count, off_t offset) {
  return preadv64(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t pwritev64(int fd, const iovec* vectors, int count, off64_t offset) {
  if (serves(fd)) return nvio::vector_write(fd, vectors, count, offset);
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
  // To append, and to be durable at return, is more than a transfer.
  if ((flags & (RWF_APPEND | RWF_DSYNC | RWF_SYNC)) != 0) {
    if (nvio::step_aside(fd) != 0) return -1;
    return NEXT(pwritev64v2)(fd, vectors, count, offset, flags);
  }
  if (!is_tracked(fd)) return NEXT(pwritev64v2)(fd, vectors, count, offset, flags);
  return offset == -1 ? writev(fd, vectors, count) : pwritev64(fd, vectors, count, offset);
}
NVIO_EXPORT ssize_t pwritev2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  return pwritev64v2(fd, vectors, count, offset, flags);
}

// NOLINTEND(bugprone-reserved-identifier)
