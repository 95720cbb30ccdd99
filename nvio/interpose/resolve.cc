// The calls behind our own, for the cache's I/O: asked for once, by whoever attaches the library.

#include <fcntl.h>

#include "interpose.h"

namespace nvio {
namespace {

template <typename T>
void resolve(T& slot, const char* name) {
  slot = reinterpret_cast<T>(dlsym(RTLD_NEXT, name));
}

}  // namespace

const RealPosix& real_posix() {
  static RealPosix real{};
  resolve(real.pread, "pread64");
  resolve(real.pwrite, "pwrite64");
  resolve(real.preadv, "preadv64");
  resolve(real.pwritev, "pwritev64");
  resolve(real.ftruncate, "ftruncate64");
  resolve(real.fsync, "fsync");
  resolve(real.fdatasync, "fdatasync");
  resolve(real.open, "open64");
  resolve(real.close, "close");
  real.dup = [](int fd) { return NEXT(fcntl64)(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); };
  resolve(real.unlink, "unlink");
  resolve(real.fstat, "fstat64");
  resolve(real.stat, "stat64");
  return real;
}

}  // namespace nvio
