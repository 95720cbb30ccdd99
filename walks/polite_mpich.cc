// Preloaded by the tests only. MPICH over UCX polls without ever yielding, so that with more ranks
// than cores a barrier takes a scheduler's time slice (20 ms) instead of microseconds. This gives
// the core away after some polls without progress; it changes nothing else.
#include <dlfcn.h>
#include <sched.h>

extern "C" unsigned ucp_worker_progress(void* worker) {
  using Progress = unsigned (*)(void*);
  static const auto real = reinterpret_cast<Progress>(dlsym(RTLD_NEXT, "ucp_worker_progress"));
  constexpr int kPatience = 20;
  static thread_local int idle = 0;
  const unsigned events = real(worker);
  idle = events != 0 ? 0 : idle + 1;
  if (idle >= kPatience) {
    idle = 0;
    sched_yield();
  }
  return events;
}
