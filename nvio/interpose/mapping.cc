// A mapping is nothing that the cache could serve. UCX, beneath MPICH, has to see mappings too: it
// looks `mmap` up by its name and overwrites the first bytes of what it finds, past which nothing
// comes any more. So there are two. A program is bound to the one that has the C library's version;
// who asks for the name alone finds the other, through which the first goes on.
#include <sys/mman.h>
#include <sys/stat.h>

#include "interpose.h"

extern "C" {
__attribute__((visibility("default"))) void* nvio_mmap(void* address, size_t length, int protection,
                                                       int flags, int fd, off64_t offset) noexcept;
__attribute__((visibility("default"), noinline)) void* nvio_next_mmap(void* address, size_t length,
                                                                      int protection, int flags,
                                                                      int fd,
                                                                      off64_t offset) noexcept;
}
__asm__(".symver nvio_mmap, mmap@" NVIO_LIBC_VERSION);
__asm__(".symver nvio_next_mmap, mmap@@NVIO");

namespace {

// A mapping, too, may be older than the cache of its file.
void note_mapped(int fd) {
  struct stat64 status {};
  if (fd < 0 || NEXT(fstat64)(fd, &status) != 0 || !S_ISREG(status.st_mode)) return;
  __atomic_fetch_or(&nvio::g_mapped, std::uint64_t{1} << (status.st_ino % 64), __ATOMIC_RELAXED);
}

}  // namespace

void* nvio_next_mmap(void* address, size_t length, int protection, int flags, int fd,
                     off64_t offset) noexcept {
  return NEXT(mmap64)(address, length, protection, flags, fd, offset);
}
void* nvio_mmap(void* address, size_t length, int protection, int flags, int fd,
                off64_t offset) noexcept {
  if (nvio::step_aside(fd) != 0) return MAP_FAILED;
  note_mapped(fd);
  return nvio_next_mmap(address, length, protection, flags, fd, offset);
}
NVIO_EXPORT void* mmap64(void* address, size_t length, int protection, int flags, int fd,
                         off64_t offset) noexcept {
  return nvio_mmap(address, length, protection, flags, fd, offset);
}
