// The process's one job and the descriptors it serves: what the loader's POSIX calls and the
// MPI entries both stand on.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "../interpose/contract.h"
#include "../nodes/job.h"
#include "../nodes/placement.h"
#include "openings.h"

namespace nvio {

// While one lives, its thread is inside nvio: for what an entry of MPI-IO does itself, but never
// around a call of the MPI, whose POSIX calls are to be served.
class Inside {
 public:
  Inside();
  ~Inside() { --depth_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  int& depth_;
};

// What the calling thread's call of MPI-IO does to a file: an MPI that reads in a call that writes
// does so to change what it read and write it back, bytes between the program's included.
void begin_writing_call();
void end_call();

class Process {
 public:
  // Never destroyed: calls may come in until the process is gone.
  static Process& the();

  void attach(const FromLoader& loader);
  const PosixHooks& hooks() const;
  const Settings& settings() const { return settings_; }

  // The job, joined at first use; null when that failed (which was then said, once).
  Job* job();
  // The job if it was joined; for calls that must not start one.
  Job* joined() const { return joined_.load(std::memory_order_acquire); }
  // Whether joining failed in a job whose other processes cache, or whose other nodes may: its
  // files must not be touched.
  bool cut_off() const { return cut_off_.load(); }
  // Whether other nodes may cache files for which this one has no room.
  bool is_left_out() const;
  // Whether its node is to be asked of the MPI: the job's machines are several, or may be, and
  // which is which nobody has said.
  bool is_to_ask() const { return !settings_.rendezvous.empty() && settings_.nodes == 0; }
  // No job is joined: all I/O is the MPI's and the kernel's.
  void stay_out();
  // What the MPI said; before the job is joined.
  void place(const JobPlace& place);
  // Joins a job on several nodes: its other processes may need this node's manager.
  void join_if_shared();
  // What concerns the processes of a node, or of all nodes, on standard error: once for all of
  // them. `what` is the same in all of them, where the sentence is not.
  void say_of_node(const char* what, const std::string& sentence) const;
  void say_of_all_nodes(const std::string& sentence) const;
  // Leaves the job; afterwards all I/O is the MPI's and the kernel's.
  void leave();
  void flush_for_good();

  // Descriptors that this thread opens from now on are remembered, until `track_opened`.
  void remember_opened();
  void forget_opened();
  // Of the remembered descriptors, serves those of the file at `path`; returns the file (with a
  // handle that the caller must release), or null when it is not cached. `descriptors` are those.
  JobFile* track_opened(const std::string& path, const FileSettings& settings,
                        std::vector<int>& descriptors);
  // After a handle's close: Open MPI leaves descriptors open, which would keep the file cached.
  void forget_descriptors(const std::vector<int>& descriptors, const JobFile* file);

  // Whether this is the process that the tables are of, and no child that has not its own yet.
  bool is_original() const { return getpid() == process_; }
  // Whether this is the child of a vfork, whose memory is still its parent's.
  bool is_borrowed() const { return !is_original() && !is_copy(); }

  // There, for what comes that cannot be served. Returns 0 or an errno value.
  int step_aside_for_parent(int fd, JobFile& file);
  int step_aside_for_parent(const char* path);

  // A file may be cached, and is used: by a descriptor of its own or by its name.
  void used(const struct stat& status);
  void used_by_name(const char* path);

  void opened(int fd);
  int closing(int fd);
  void duplicated(int from, int to);
  JobFile* file_of(int fd);
  // O_RDONLY, O_WRONLY or O_RDWR: what a served descriptor was opened for.
  int access_of(int fd) const { return access_[fd].load(std::memory_order_relaxed); }

 private:
  Process();
  // These take over the handle on the file.
  void track(int fd, JobFile* file);
  void enter(int fd, JobFile* file);
  void leave_to_kernel(JobFile* file);
  bool is_of_stream(int fd) const;
  static bool has_place(int fd) { return fd >= 0 && fd < kMaxDescriptors; }  // in the tables
  void untrack_all();
  // In a fork's child: what serves its parent is not its own, and nothing of it is given back.
  void become_child();
  // Whether this is a child that ran no handler of fork (_Fork, clone), and has not become one. It
  // becomes one when it uses what is cached, and not before: that takes memory, whose lock may be
  // held for ever by a thread that is not here.
  bool is_copy() const { return !original_->load(std::memory_order_relaxed); }
  // A served descriptor that a fork's child inherited, and uses.
  void step_aside_as_child(int fd);
  void track_earlier(const struct stat& wanted, JobFile* file);

  Settings settings_;
  std::unique_ptr<Job> job_;
  std::atomic<Job*> joined_{nullptr};
  bool refused_;  // no job is to be joined, or not again
  std::atomic<bool> cut_off_{false};
  std::mutex mutex_;  // guards joining and leaving
  std::uint8_t* tracked_ = nullptr;
  const std::uint64_t* mapped_ = nullptr;  // as FromLoader has them
  // One entry a descriptor, of zeroed pages that are only touched where descriptors are.
  std::atomic<JobFile*>* files_;
  std::atomic<int>* access_;
  std::atomic<bool>* left_open_;  // by an MPI after its close: nobody uses them
  Openings* openings_ = new Openings;
  std::atomic<int> served_{0};   // descriptors with an entry in files_
  pid_t process_ = getpid();     // whose tables these are
  std::atomic<bool>* original_;  // false in a copy of this memory, as a child has it
  bool is_child_ = false;        // of a fork in a process with served descriptors
};

}  // namespace nvio
