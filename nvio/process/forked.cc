// What becomes of a process's job in the children that it forks.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>

#include "../nodes/other_jobs.h"
#include "../system/all_signals_blocked.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "hooks.h"
#include "zeroed.h"

namespace nvio {

// The copies of the parent's tables are left as they are, destructors included. The lock may be
// held by one of its threads, which are not here to let go of it.
void Process::become_child() {
  original_->store(true);
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

void Process::used(const struct stat& status) {
  if (!is_copy()) return;
  Job* job = joined();
  if (job != nullptr && job->session().segment().find(status) != kNone) become_child();
}

void Process::used_by_name(const char* path) {
  struct stat status {};
  if (is_copy() && real().stat(path, &status) == 0) used(status);
}

namespace {

// What act() returns in a child, which has memory and descriptors of its own. Returns 0 or an errno
// value.
template <typename Act>
int done_by_child(Act&& act) {
  const AllSignalsBlocked blocked;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno;
  const pid_t child = fork();
  if (child == 0) {
    const int found = or_no_memory(act);
    _exit(write(ends[1], &found, sizeof found) == sizeof found ? 0 : 1);
  }
  int error = child < 0 ? errno : EIO;
  close(ends[1]);
  // Not by its status: where the program ignores its children, they have none.
  if (child > 0 && read(ends[0], &error, sizeof error) != sizeof error) error = EIO;
  close(ends[0]);
  if (child < 0) return error;
  waitpid(child, nullptr, 0);
  // The program's own handler knows of no such child.
  sigset_t told;
  sigemptyset(&told);
  sigaddset(&told, SIGCHLD);
  const timespec now{};
  sigtimedwait(&told, nullptr, &now);
  return error;
}

}  // namespace

// The child of a vfork has its parent's memory, but descriptors of its own: what the cache opened
// or closed here, its parent would not find so. So a child of its own asks the job from outside.
int Process::step_aside_for_parent(int fd, JobFile& file) {
  file.await_queued();
  if (file.is_left()) return 0;
  return done_by_child([&] {
    // The second where its mode forbids to open it anew.
    const PathOfDescriptor path(fd);
    const int error = step_aside_elsewhere(settings_, path.c_str());
    return error == 0 ? 0 : step_aside_elsewhere(settings_, fd);
  });
}

int Process::step_aside_for_parent(const char* path) {
  struct stat status {};
  Job& job = *joined();
  if (real().stat(path, &status) != 0 || job.session().segment().find(status) == kNone) return 0;
  job.await_queued();
  return done_by_child([&] { return step_aside_elsewhere(settings_, path); });
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
