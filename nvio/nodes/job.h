// A process's part in its job: the session on its own node, and the ways to the managers of the
// other nodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../cache/session.h"
#include "job_file.h"
#include "node_client.h"

namespace nvio {

class Job {
 public:
  // Joins the job at this node, or starts it there. On failure returns null and a sentence.
  static std::unique_ptr<Job> join(const Settings& settings, std::string& why);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Session& session() { return *session_; }
  Counters& counters() { return session_->counters(); }
  std::uint32_t nodes() const { return settings_.nodes; }
  std::uint32_t node() const { return settings_.node.value_or(0); }
  NodeClient& client(std::uint32_t node) { return *clients_[node]; }

  // As Session's functions of these names, for the file as the whole job sees it.
  JobFile* acquire(int fd, const std::string& path, const FileSettings& settings);
  JobFile* acquire_if_open(int fd, const struct stat& status);
  int release(JobFile* file);
  void correct_size(struct stat* status);
  // Writes back what is cached of a file that it has open, and tells its size and times anew.
  void write_back(struct stat* status);
  // Steps aside for the file of this name, if the job has it open and it does not go away anyway.
  // Returns 0 or an errno value.
  int step_aside(const char* path);
  // The same by a descriptor itself.
  int step_aside(int fd, const struct stat& status);

  bool has_open_files();
  // Steps aside for every open file. Returns 0 or the errno value of the first for which it could
  // not.
  int leave_files();

  // Waits for what this process has queued.
  void await_queued();
  // As Session's, with that.
  void flush_for_good();

  // In a forked child: lets go of what keeps the parent's store and managers alive.
  void abandon();

 private:
  explicit Job(const Settings& settings) : settings_(settings) {}
  JobFile* enter(CachedFile* cached, const FileSettings& settings);
  // Whether nothing of the file is cached any more. It is not opened then: its close would give up
  // what locks of the file the process has.
  bool is_left(const FileEntry& entry) const;
  // Calls act(file) if the job has `wanted`, whose entry this is, open and `path` still leads to
  // it. Returns what that does: 0 or an errno value.
  template <typename Act>
  int with_open(const char* path, const struct stat& wanted, const FileEntry& entry, Act&& act);
  // The same by a descriptor.
  template <typename Act>
  int with_open(int fd, const struct stat& wanted, Act&& act);

  Settings settings_;
  std::unique_ptr<Session> session_;
  std::vector<std::unique_ptr<NodeClient>> clients_;  // one a node; empty for a job on one node
  std::mutex mutex_;                                  // guards the table
  std::array<std::unique_ptr<JobFile>, kMaxFiles> files_;
};

}  // namespace nvio
