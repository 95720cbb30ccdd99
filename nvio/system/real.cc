#include "real.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace nvio {
namespace {

int own_copy(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); }

const RealPosix kOwn{::pread, ::pwrite, ::preadv, ::pwritev, ::ftruncate, ::fsync, ::fdatasync,
                     ::open,  ::close,  own_copy, ::unlink,  ::fstat,     ::stat};
const RealPosix* g_real = &kOwn;

}  // namespace

const RealPosix& real() { return *g_real; }
void set_real(const RealPosix* posix) { g_real = posix; }

ssize_t read_fully(int fd, void* buffer, std::size_t length, off_t offset) {
  std::size_t done = 0;
  while (done < length) {
    const ssize_t n = real().pread(fd, static_cast<char*>(buffer) + done, length - done,
                                   offset + static_cast<off_t>(done));
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

ssize_t write_fully(int fd, const void* buffer, std::size_t length, off_t offset) {
  std::size_t done = 0;
  while (done < length) {
    const ssize_t n = real().pwrite(fd, static_cast<const char*>(buffer) + done, length - done,
                                    offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = EIO;
      return -1;
    }
    done += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

ssize_t write_vectors_fully(int fd, iovec* vectors, int count, off_t offset) {
  ssize_t total = 0;
  while (count > 0) {
    ssize_t n = real().pwritev(fd, vectors, count, offset + total);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = EIO;
      return -1;
    }
    total += n;
    while (count > 0 && static_cast<std::size_t>(n) >= vectors->iov_len) {
      n -= static_cast<ssize_t>(vectors->iov_len);
      ++vectors;
      --count;
    }
    if (count > 0) {
      vectors->iov_base = static_cast<char*>(vectors->iov_base) + n;
      vectors->iov_len -= static_cast<std::size_t>(n);
    }
  }
  return total;
}

bool is_removed(int fd) {
  struct stat status {};
  return real().fstat(fd, &status) != 0 || status.st_nlink == 0;
}

std::uint64_t total_of(const iovec* vectors, int count) {
  std::uint64_t total = 0;
  for (int i = 0; i < count; ++i) total += vectors[i].iov_len;
  return total;
}

bool may_reach(std::uint64_t end) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || end <= limit.rlim_cur;
}

ssize_t write_own(int fd, const void* buffer, std::size_t length, off_t offset) {
  if (may_reach(static_cast<std::uint64_t>(offset) + length)) {
    return write_fully(fd, buffer, length, offset);
  }
  errno = EFBIG;
  return -1;
}

int reserve_room(int fd, std::uint64_t offset, std::uint64_t length) {
  constexpr std::uint64_t kLeast = 4 << 10;
  for (std::uint64_t piece = length; length > 0;) {
    piece = std::min(piece, length);
    const int error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(piece));
    if (error != 0 && error != EINTR) return error;
    if (error == EINTR) {
      // Nothing is kept of what was interrupted: a fast timer leaves time for little.
      piece = std::max(piece / 2, kLeast);
      continue;
    }
    offset += piece;
    length -= piece;
  }
  return 0;
}

int reserve_up_to(int fd, std::uint64_t size) {
  struct stat status {};
  if (real().fstat(fd, &status) != 0) return errno;
  const auto present = static_cast<std::uint64_t>(status.st_size);
  if (present >= size) return 0;
  return may_reach(size) ? reserve_room(fd, present, size - present) : EFBIG;
}

bool read_text(const std::string& path, std::string& text) {
  const int fd = real().open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  text.clear();
  char buffer[4096];
  for (;;) {
    // Not read_fully: files of /proc come in pieces, and have no size beforehand.
    const ssize_t n = real().pread(fd, buffer, sizeof buffer, static_cast<off_t>(text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      real().close(fd);
      return n == 0;
    }
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

int persist_folder(const std::string& folder) {
  const int fd = real().open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = real().fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  real().close(fd);
  return error;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<std::size_t>(slash, 1));
}

int persist_name_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const int error = persist_folder(folder);
  return error != 0 ? error : persist_folder(folder_of(folder));
}

std::string absolute_path(const char* path) {
  const std::string text(path);
  const std::size_t slash = text.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : text.substr(0, slash + 1);
  char resolved[PATH_MAX];
  if (realpath(folder.c_str(), resolved) == nullptr) return {};
  std::string whole = resolved;
  if (whole.back() != '/') whole += '/';
  return whole + (slash == std::string::npos ? text : text.substr(slash + 1));
}

std::string failed(const std::string& what) { return what + ": " + std::strerror(errno); }

}  // namespace nvio
