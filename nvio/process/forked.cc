// What becomes of a process's job in the children that it forks.
#include "../nodes/other_jobs.h"
#include "hooks.h"
#include "zeroed.h"

namespace nvio {

// The copies of the parent's tables are left as they are, destructors included. The lock may be
// held by one of its threads, which are not here to let go of it.
void Process::become_child() {
  process_ = getpid();
  new (&mutex_) std::mutex;
  if (job_ == nullptr) return;
  joined_.store(nullptr);
  job_.release()->abandon();
  files_ = zeroed<std::atomic<JobFile*>>(kMaxDescriptors);
  openings_ = new Openings;
  served_.store(0);
  is_child_ = true;
}

// Most children only close what they inherit, on their way to execute something. One that goes on
// using it may outlive its parent, and end without a word: so it takes no handle, and the file is
// cached no more.
void Process::step_aside_as_child(int fd) {
  const std::lock_guard guard(mutex_);
  if (__atomic_load_n(&tracked_[fd], __ATOMIC_ACQUIRE) != kServed) return;
  if (files_[fd].load() != nullptr) return;
  opened_outside(settings_, fd);
  __atomic_store_n(&tracked_[fd], std::uint8_t{0}, __ATOMIC_RELEASE);
}

}  // namespace nvio
