#include "hooks.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "../nodes/other_jobs.h"
#include "../nodes/placement.h"
#include "../settings/first_to_say.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "../system/remembered.h"
#include "false_in_copies.h"
#include "termination.h"
#include "zeroed.h"

namespace nvio {
namespace {

thread_local Remembered g_opened;
int* (*g_inside)() = nullptr;  // the loader's

// By the inode alone: on some file systems the device is another one in /proc than by stat.
bool is_mapped(ino_t inode) {
  std::string maps;
  return read_text("/proc/self/maps", maps) &&
         maps.find(" " + std::to_string(inode) + " ") != std::string::npos;
}

// Whether the job runs on several nodes that cache together.
bool is_shared(Settings settings) {
  std::string why;
  return place_process(settings, why) && settings.nodes > 1;
}

}  // namespace

Inside::Inside() : depth_(*g_inside()) { ++depth_; }

Process& Process::the() {
  static Process* process = new Process;
  return *process;
}

Process::Process()
    : settings_(read_settings_of_process()),
      refused_(settings_.disabled),
      files_(zeroed<std::atomic<JobFile*>>(kMaxDescriptors)),
      access_(zeroed<std::atomic<int>>(kMaxDescriptors)),
      left_open_(zeroed<std::atomic<bool>>(kMaxDescriptors)),
      original_(false_in_copies()) {
  pthread_atfork(nullptr, nullptr, [] { the().become_child(); });
  for (const auto& complaint : settings_.complaints)
    say_of_all_nodes(complaint + "; it is ignored");
  for (const auto& unknown : settings_.unknown) say_of_all_nodes(unknown);
}

void Process::say_of_all_nodes(const std::string& sentence) const {
  if (!is_on_a_later_node()) say_of_node(sentence.c_str(), sentence);
}

void Process::say_of_node(const char* what, const std::string& sentence) const {
  if (settings_.quiet || !is_first_to_say(what)) return;
  std::fprintf(stderr, "nvio: %s\n", sentence.c_str());
}

void Process::attach(const FromLoader& loader) {
  set_real(loader.real);
  tracked_ = loader.tracked;
  mapped_ = loader.mapped;
  g_inside = loader.inside;
}

Job* Process::job() {
  const std::lock_guard guard(mutex_);
  if (job_ == nullptr && !refused_) {
    std::string why;
    const bool lacks_memory =
        or_no_memory([&] { return job_ = Job::join(settings_, why), 0; }) != 0;
    if (lacks_memory) why = "there is no memory for a store";
    if (job_ == nullptr) {
      refused_ = true;
      cut_off_ = true;  // also where there is no memory to find out
      const bool shared = is_shared(settings_);
      const bool cached = shared || others_have_store(settings_);
      // What a killed run left there would be written over what this one writes.
      cut_off_ = cached || (lacks_memory && has_store(settings_));
      const std::string who = shared   ? "other nodes of the job may cache its files, so processes "
                                         "on this one open none"
                              : cached ? "other processes of the job cache its files, so this one "
                                         "opens none"
                                       : "a store is there that may hold what its files lack, so "
                                         "this process opens none";
      say_of_node("no store",
                  why + "; " +
                      (cut_off_ ? who + " (NVIO_DISABLE=1 for the whole job does without nvio)"
                                : "the program's I/O goes on without the cache"));
    }
    joined_.store(job_.get(), std::memory_order_release);
    if (job_ != nullptr && !settings_.quiet && !job_->session().remark().empty()) {
      std::fprintf(stderr, "nvio: %s\n", job_->session().remark().c_str());
    }
    if (job_ != nullptr && settings_.flush_at_sigterm) {
      flush_at_termination([] { or_no_memory([] { return the().flush_for_good(), 0; }); });
    }
  }
  return job_.get();
}

bool Process::is_left_out() const {
  Job* job = joined();
  return job != nullptr && job->nodes() > 1 && job->session().has_overflowed();
}

void Process::stay_out() {
  const std::lock_guard guard(mutex_);
  refused_ = true;
}

void Process::place(const JobPlace& place) {
  settings_.nodes = place.nodes;
  settings_.ranks = place.ranks;
  settings_.node = place.node;
  settings_.session = place.session;
}

void Process::join_if_shared() {
  if (is_shared(settings_)) job();
}

void Process::leave() {
  const std::lock_guard guard(mutex_);
  const bool tries_again = std::exchange(refused_, true);  // at exit, what MPI_Finalize could not
  if (job_ == nullptr) return;
  if (!job_->has_open_files()) {
    joined_.store(nullptr);
    job_.reset();
    return;
  }
  // A process may end without closing what it has open, and nobody will hear of that.
  if (const int error = job_->leave_files(); error != 0) {
    // Who has a file for reading only has written nothing of what is dirty.
    if (error != EBADF && !settings_.quiet && !tries_again) {
      std::fprintf(stderr,
                   "nvio: what is cached of files that are still open could not be written: %s; "
                   "unless they are closed, it stays in %s for nvio recover\n",
                   std::strerror(error), job_->session().folder().c_str());
    }
    return;
  }
  untrack_all();
  joined_.store(nullptr);
  // It is not destroyed: another thread may be in a call on one of these descriptors.
  job_.release()->session().give_up_store();
}

void Process::untrack_all() {
  for (int fd = 0; fd < kMaxDescriptors && served_.load() != 0; ++fd) {
    if (files_[fd].load(std::memory_order_relaxed) == nullptr) continue;
    __atomic_store_n(&tracked_[fd], std::uint8_t{0}, __ATOMIC_RELEASE);
    if (files_[fd].exchange(nullptr) != nullptr) served_.fetch_sub(1);
  }
}

// Under the lock: the session must not end while it is written back.
void Process::flush_for_good() {
  const std::lock_guard guard(mutex_);
  if (job_ != nullptr) job_->flush_for_good();
}

void Process::remember_opened() { g_opened.begin(); }

void Process::forget_opened() { g_opened.end(); }

void Process::forget_descriptors(const std::vector<int>& descriptors, const JobFile* file) {
  for (const int fd : descriptors) {
    if (file_of(fd) != file) continue;
    closing(fd);
    left_open_[fd].store(true);
  }
}

JobFile* Process::track_opened(const std::string& path, const FileSettings& settings,
                               std::vector<int>& descriptors) {
  const std::vector<int>& opened = g_opened.end();
  descriptors.reserve(opened.size());
  Job* job = this->job();
  struct stat wanted {};
  if (job == nullptr || real().stat(path.c_str(), &wanted) != 0) return nullptr;
  JobFile* found = nullptr;
  for (const int fd : opened) {
    struct stat status {};
    if (real().fstat(fd, &status) != 0 || status.st_ino != wanted.st_ino ||
        status.st_dev != wanted.st_dev) {
      continue;
    }
    if (file_of(fd) == nullptr) {
      JobFile* file = job->acquire(fd, path, settings);
      if (file == nullptr) continue;
      // Held while it is left: whoever opens it later must find that.
      if (!has_place(fd) && found == nullptr) found = job->acquire_if_open(fd, status);
      track(fd, file);
    }
    descriptors.push_back(fd);
    if (found == nullptr) found = job->acquire_if_open(fd, status);
  }
  if (found != nullptr && or_no_memory([&] { return track_earlier(wanted, found), 0; }) != 0) {
    found->step_aside();  // what earlier descriptors there are is not known
  }
  return found;
}

// Descriptors that the program opened before any rank cached the file: what is written through
// them must not go past the cache either. What streams and mappings do cannot be seen.
void Process::track_earlier(const struct stat& wanted, JobFile* file) {
  if ((*mapped_ >> (wanted.st_ino % 64) & 1) != 0 && is_mapped(wanted.st_ino)) file->step_aside();
  DIR* listing = opendir("/proc/self/fd");
  if (listing == nullptr && errno == ENOMEM) throw std::bad_alloc();
  if (listing == nullptr) return;
  std::vector<int> descriptors;
  const int error = or_no_memory([&] {
    while (const dirent* entry = readdir(listing)) descriptors.push_back(std::atoi(entry->d_name));
    return 0;
  });
  closedir(listing);
  if (error != 0) throw std::bad_alloc();
  for (const int fd : descriptors) {
    struct stat status {};
    if (file_of(fd) != nullptr || file->owns(fd) || (has_place(fd) && left_open_[fd].load()) ||
        real().fstat(fd, &status) != 0 || status.st_ino != wanted.st_ino ||
        status.st_dev != wanted.st_dev) {
      continue;
    }
    if (JobFile* same = job_->acquire_if_open(fd, status); same != nullptr) enter(fd, same);
  }
}

void Process::track(int fd, JobFile* file) {
  // What appends has to find the end that all processes agree on, and what is durable at return
  // waits for the file system at each write: both are the kernel's to do.
  const int flags = ::fcntl(fd, F_GETFL);
  if (!has_place(fd) || flags < 0 || (flags & (O_APPEND | O_DSYNC)) != 0) {
    leave_to_kernel(file);
    return;
  }
  if (or_no_memory([&] { return openings_->begin(fd), 0; }) != 0) {
    leave_to_kernel(file);
    return;
  }
  access_[fd].store(flags & O_ACCMODE, std::memory_order_relaxed);
  if (files_[fd].exchange(file) == nullptr) served_.fetch_add(1);
  __atomic_store_n(&tracked_[fd], kServed, __ATOMIC_RELEASE);
}

// The same for a descriptor that the program may have given to a stream, which no hook sees.
void Process::enter(int fd, JobFile* file) {
  is_of_stream(fd) ? leave_to_kernel(file) : track(fd, file);
}

bool Process::is_of_stream(int fd) const {
  return fd <= STDERR_FILENO ||
         (has_place(fd) && __atomic_load_n(&tracked_[fd], __ATOMIC_ACQUIRE) == kStream);
}

void Process::leave_to_kernel(JobFile* file) {
  if (const int error = file->step_aside(); error != 0 && !settings_.quiet) {
    std::fprintf(
        stderr,
        "nvio: cannot write back a file that is opened to append, to write durably, or for "
        "a stream: %s; what was written before may replace what is written so\n",
        std::strerror(error));
  }
  if (Job* job = joined(); job != nullptr) job->release(file);
}

void Process::opened(int fd) {
  struct stat status {};
  if (is_copy() && real().fstat(fd, &status) == 0) used(status);
  if (is_borrowed() || is_copy()) return;
  if (has_place(fd)) {
    // Its number was another file's, closed past us by a system call of the program's own.
    if (files_[fd].load(std::memory_order_relaxed) != nullptr) closing(fd);
    left_open_[fd].store(false, std::memory_order_relaxed);
  }
  Job* job = joined();
  if (g_opened.is_under_way()) {
    g_opened.add(fd);
  } else if (job == nullptr) {
    opened_outside(settings_, fd);
  }
  if (job == nullptr || real().fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return;
  if ((::fcntl(fd, F_GETFL) & O_PATH) != 0) return;  // nothing can be transferred through it
  JobFile* file = job->acquire_if_open(fd, status);
  if (file == nullptr) return;
  g_opened.is_under_way() ? track(fd, file) : enter(fd, file);  // an MPI makes no stream of it
}

int Process::closing(int fd) {
  if (is_borrowed()) return 0;
  __atomic_store_n(&tracked_[fd], std::uint8_t{0}, __ATOMIC_RELEASE);
  if (is_copy()) return 0;  // its handle is the parent's
  JobFile* file = files_[fd].exchange(nullptr);
  if (file == nullptr) return 0;
  served_.fetch_sub(1);
  const bool closes = openings_->end(fd);
  Job* job = joined();
  if (job == nullptr) return 0;
  // What others may look for after a close; a copy that stays open promises them nothing.
  const bool reads = access_of(fd) == O_RDONLY;
  const int written = !closes ? 0 : reads ? file->write_back_of_reader() : file->write_back();
  const int released = job->release(file);
  return as_posix(written != 0 ? written : released);
}

void Process::duplicated(int from, int to) {
  if (is_borrowed()) return;
  Job* job = joined();
  struct stat status {};
  if (file_of(from) == nullptr || job == nullptr || real().fstat(to, &status) != 0) return;
  JobFile* copy = job->acquire_if_open(to, status);
  if (copy == nullptr) return;
  track(to, copy);
  openings_->copy(from, to);
}

JobFile* Process::file_of(int fd) {
  if (!has_place(fd)) return nullptr;
  if (is_copy()) become_child();
  JobFile* file = files_[fd].load(std::memory_order_acquire);
  if (file == nullptr && is_child_) step_aside_as_child(fd);
  return file;
}

}  // namespace nvio
