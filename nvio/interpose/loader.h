// The two halves of libnvio.so share this: who serves POSIX calls, and what lies behind us.
#pragma once

#include <pthread.h>

#include "contract.h"

namespace nvio {

// Zero-initialised in loader.cc; the checker cannot see that from a declaration.
// NOLINTBEGIN(bugprone-dynamic-static-initializers)
// Null until a library for this process's MPI is attached.
extern const PosixHooks* g_hooks;
extern std::uint8_t g_tracked[kMaxDescriptors];
extern std::uint64_t g_mapped;
// How often this thread is inside nvio. A signal handler may have interrupted it with a lock held,
// so what is called then goes to the C library at once. Initial-exec: what a preloaded library has
// of its own for each thread is there from the start.
extern constinit thread_local int g_inside __attribute__((tls_model("initial-exec")));
// NOLINTEND(bugprone-dynamic-static-initializers)

const RealPosix& real_posix();

// For a process that has not called MPI-IO, as soon as a job of its user may cache files on this
// node: has its calls by name looked at. False as long as there is nothing to look for.
bool begin_watching();

inline bool is_served() { return g_hooks != nullptr && g_inside == 0; }

// The same for who may use a file by its name past the jobs that cache it.
inline bool is_watched() { return g_inside == 0 && (g_hooks != nullptr || begin_watching()); }

inline bool is_tracked(int fd) {
  return is_served() && fd >= 0 && fd < kMaxDescriptors && g_tracked[fd] == kServed;
}

// The hooks, for one call: the thread is inside nvio as long as this lives, and is not cancelled
// there: the calls of the C library that are no points of cancellation may not end in one.
class Hooks {
 public:
  Hooks() {
    ++g_inside;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
  }
  ~Hooks() {
    pthread_setcancelstate(cancel_, nullptr);
    --g_inside;
  }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;
  const PosixHooks* operator->() const { return g_hooks; }

 private:
  int cancel_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace nvio
