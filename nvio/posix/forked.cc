// What becomes of a process's job in the children that it forks.
#include <cstdio>
#include <cstring>

#include "hooks.h"
#include "zeroed.h"

namespace nvio {

// The copies of the parent's tables are left as they are, destructors included. The lock may be
// held by one of its threads, which are not here to let go of it.
void Process::become_child() {
  process_ = getpid();
  new (&mutex_) std::mutex;
  if (job_ == nullptr) return;
  settings_.session = job_->session().settings().session;
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
  std::string why;
  int error = 0;
  const auto job = Job::join(settings_, why);
  if (job != nullptr) {
    error = job->step_aside(("/proc/self/fd/" + std::to_string(fd)).c_str());
    if (error != 0) why = std::string("cannot write back what is cached: ") + std::strerror(error);
  }
  if ((job == nullptr || error != 0) && !settings_.quiet) {
    std::fprintf(stderr, "nvio: %s; this forked process may read old bytes of its parent's file\n",
                 why.c_str());
  }
  __atomic_store_n(&tracked_[fd], std::uint8_t{0}, __ATOMIC_RELEASE);
}

}  // namespace nvio
