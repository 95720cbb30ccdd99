// A slow file system for tests: preloaded behind nvio, each pread and pwrite waits before it is
// made, those of the MPI as well as those of nvio.
#include <dlfcn.h>
#include <sys/types.h>
#include <time.h>

namespace {

void wait() {
  constexpr long kNanoseconds = 100'000;
  const timespec pause{0, kNanoseconds};
  nanosleep(&pause, nullptr);
}

template <typename... Arguments>
ssize_t slowly(const char* name, Arguments... arguments) {
  wait();
  const auto next = reinterpret_cast<ssize_t (*)(Arguments...)>(dlsym(RTLD_NEXT, name));
  return next(arguments...);
}

}  // namespace

extern "C" {
ssize_t pread(int fd, void* buffer, size_t length, off_t offset) {
  return slowly("pread", fd, buffer, length, offset);
}
ssize_t pread64(int fd, void* buffer, size_t length, off64_t offset) {
  return slowly("pread64", fd, buffer, length, offset);
}
ssize_t pwrite(int fd, const void* buffer, size_t length, off_t offset) {
  return slowly("pwrite", fd, buffer, length, offset);
}
ssize_t pwrite64(int fd, const void* buffer, size_t length, off64_t offset) {
  return slowly("pwrite64", fd, buffer, length, offset);
}
}
