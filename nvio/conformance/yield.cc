// Debian's MPICH (ch4:ucx) polls without ever yielding: with more ranks than cores a barrier takes
// a time slice. Preloaded into tests and measurements, with and without nvio alike, this gives the
// core away after a few polls that found nothing.
#include <dlfcn.h>
#include <sched.h>

extern "C" unsigned ucp_worker_progress(void* worker) {
  using Progress = unsigned (*)(void*);
  static const auto next = reinterpret_cast<Progress>(dlsym(RTLD_NEXT, "ucp_worker_progress"));
  static thread_local int empty = 0;
  constexpr int kPatience = 20;
  const unsigned progressed = next(worker);
  empty = progressed != 0 ? 0 : empty + 1;
  if (empty >= kPatience) {
    empty = 0;
    sched_yield();
  }
  return progressed;
}
