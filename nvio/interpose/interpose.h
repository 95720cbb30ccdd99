// How the files of this folder stand in for the calls by which MPI libraries and programs reach a
// file: on a descriptor that the cache tracks they are served by it, on any other they go on to
// the C library at once. All variants of a call come down to a few hooks (contract.h).
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "loader.h"

#define NVIO_EXPORT extern "C" __attribute__((visibility("default")))

// The next definition of the call we stand in for. Resolved at first use: other preloaded
// libraries may call us before our constructor would have run. Threads that come first together
// each resolve it: what the C++ runtime, which is not here, would make once they might meet
// half-made.
#define NEXT(name)                                          \
  ([]() {                                                   \
    static void* known = nullptr;                           \
    void* next = __atomic_load_n(&known, __ATOMIC_RELAXED); \
    if (next == nullptr) {                                  \
      next = dlsym(RTLD_NEXT, #name);                       \
      __atomic_store_n(&known, next, __ATOMIC_RELAXED);     \
    }                                                       \
    return reinterpret_cast<decltype(&::name)>(next);       \
  }())

namespace nvio {

// What comes cannot be served: the cache writes back and stays out of the file. -1 with errno when
// it cannot: a call that went to the file then would find old bytes, or write what older ones
// replace later, and so must fail.
inline int step_aside(int fd) { return is_tracked(fd) ? Hooks()->step_aside(fd) : 0; }
inline int step_aside(const char* path) {
  return is_watched() ? Hooks()->step_aside_path(path) : 0;
}

// The program changes how transfers through the descriptor are done, and maybe so that no call of
// ours sees it, or locks its opening. -1 with errno when the cache's own would change with it.
inline int stand_alone(int fd) { return is_tracked(fd) ? Hooks()->stand_alone(fd) : 0; }

// The program or its MPI locks ranges of the file.
inline void expect_locks(int fd) {
  if (is_tracked(fd)) Hooks()->expect_locks(fd);
}

// The descriptor is about to be closed: 0, or an error number when what the cache held could not be
// written back.
inline int closing(int fd) { return is_tracked(fd) && Hooks()->closing(fd) != 0 ? errno : 0; }

// What comes through this descriptor from now on cannot be seen: it is no longer ours either, so
// that whatever has its number next is not taken for it. Returns as `closing` does.
inline int let_go(int fd) {
  const int error = step_aside(fd) != 0 || stand_alone(fd) != 0 ? errno : 0;
  const int closed = closing(fd);
  return error != 0 ? error : closed;
}

// The same for a call that can fail before anything is let go: -1 with errno.
inline int hand_over(int fd) {
  if (step_aside(fd) != 0) return -1;
  const int error = let_go(fd);
  if (error != 0) errno = error;
  return error != 0 ? -1 : 0;
}

// Streams are remembered whether their file is cached or not: it may be later.
inline void mark_stream(FILE* stream) {
  const int fd = stream != nullptr ? fileno(stream) : -1;
  if (fd < 0 || fd >= kMaxDescriptors) return;
  closing(fd);  // its number was another file's, closed past us
  __atomic_store_n(&g_tracked[fd], kStream, __ATOMIC_RELEASE);
}

// Whether a stream may use the descriptor: as the standard ones do from the start.
inline bool is_of_stream(int fd) {
  return fd >= 0 && (fd <= STDERR_FILENO || (fd < kMaxDescriptors && g_tracked[fd] == kStream));
}

// Not when a descriptor is closed, but when its number is given out again or its stream is closed:
// the child of a vfork closes what its parent goes on using, and has its memory.
inline void unmark_stream(int fd) {
  if (fd < 0 || fd >= kMaxDescriptors) return;
  std::uint8_t expected = kStream;
  __atomic_compare_exchange_n(&g_tracked[fd], &expected, std::uint8_t{0}, false, __ATOMIC_RELEASE,
                              __ATOMIC_RELAXED);
}

}  // namespace nvio
