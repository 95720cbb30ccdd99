#include "job.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "../cache/cached_file.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "placement.h"

namespace nvio {
namespace {

FileSettings settings_of(const FileEntry& entry) {
  FileSettings settings;
  settings.admit = static_cast<Admit>(entry.admit);
  settings.sync = static_cast<SyncTo>(entry.sync);
  settings.close = static_cast<Close>(entry.close);
  settings.bypass_size = entry.bypass_size;
  return settings;
}

}  // namespace

std::unique_ptr<Job> Job::join(const Settings& settings, std::string& why) {
  std::unique_ptr<Job> job(new Job(settings));
  if (!place_process(job->settings_, why)) return nullptr;
  job->session_ = Session::join(job->settings_, why);
  if (job->session_ == nullptr) return nullptr;
  if (job->nodes() == 1) return job;
  const Settings& own = job->settings_;
  auto to_own = std::make_unique<NodeClient>(own, job->node());
  NodeClient* const through = is_relayed(own) ? to_own.get() : nullptr;
  job->clients_.resize(job->nodes());
  for (std::uint32_t node = 0; node < job->nodes(); ++node) {
    if (node != job->node()) {
      job->clients_[node] = std::make_unique<NodeClient>(own, node, through);
    }
  }
  job->clients_[job->node()] = std::move(to_own);
  // Our own manager lives as long as some process of its node is connected to it.
  if (!job->client(job->node()).connect(why)) return nullptr;
  return job;
}

Job::~Job() = default;

void Job::abandon() {
  session_->abandon();
  for (const auto& client : clients_) client->abandon();
}

JobFile* Job::acquire(int fd, const std::string& path, const FileSettings& settings) {
  CachedFile* cached = session_->acquire(fd, path, settings);
  return cached == nullptr ? nullptr : enter(cached, settings);
}

JobFile* Job::acquire_if_open(int fd, const struct stat& status) {
  CachedFile* cached = session_->acquire_if_open(fd, status);
  if (cached == nullptr) return nullptr;
  return enter(cached, settings_of(cached->entry()));
}

JobFile* Job::enter(CachedFile* cached, const FileSettings& settings) {
  JobFile* file = nullptr;
  {
    const std::lock_guard guard(mutex_);
    auto& place = files_[cached->index()];
    try {
      if (place == nullptr) place = std::make_unique<JobFile>(*this, *cached, settings);
    } catch (const std::bad_alloc&) {
      session_->release(cached);
      throw;
    }
    file = place.get();
    ++file->handles_;
  }
  if (nodes() > 1) file->enter();
  return file;
}

int Job::release(JobFile* file) {
  CachedFile& cached = file->cached();
  int error = 0;
  {
    const std::lock_guard guard(mutex_);
    if (--file->handles_ == 0) {
      error = file->drain_queue();
      if (const int closed = nodes() > 1 ? or_no_memory([file] { return file->let_go(); }) : 0;
          error == 0) {
        error = closed;
      }
      files_[cached.index()].reset();
    }
  }
  const int own = session_->release(&cached);
  return error != 0 ? error : own;
}

bool Job::is_left(const FileEntry& entry) const {
  return (nodes() == 1 ? entry.aside : entry.left).load() != 0;
}

template <typename Act>
int Job::with_open(int fd, const struct stat& wanted, Act&& act) {
  struct stat status {};
  if (real().fstat(fd, &status) != 0 || status.st_dev != wanted.st_dev ||
      status.st_ino != wanted.st_ino) {
    return 0;
  }
  JobFile* file = acquire_if_open(fd, status);
  if (file == nullptr) return 0;
  const int error = act(*file);
  release(file);
  return error;
}

template <typename Act>
int Job::with_open(const char* path, const struct stat& wanted, const FileEntry& entry, Act&& act) {
  if (CachedFile* cached = session_->acquire_if_open_here(wanted); cached != nullptr) {
    JobFile* file = enter(cached, settings_of(cached->entry()));
    const int error = act(*file);
    const int released = release(file);
    return error != 0 ? error : released;
  }
  // Nobody looks in the cache for one that was left, and closing it gives up the program's locks.
  if (is_left(entry)) return 0;
  int fd = -1;
  for (const int access : {O_RDWR, O_RDONLY, O_WRONLY}) {
    if (fd < 0) fd = real().open(path, access | O_CLOEXEC);
  }
  if (fd < 0) return errno;
  const int error = with_open(fd, wanted, act);
  real().close(fd);
  return error;
}

void Job::correct_size(struct stat* status) {
  const std::uint32_t index = session_->segment().find(*status);
  if (index == kNone) return;
  const FileEntry& entry = session_->segment().file(index);
  if (nodes() == 1 && !is_left(entry)) {
    session_->correct_size(status);
    return;
  }
  const std::string path = entry.opened_path();
  with_open(path.c_str(), *status, entry, [&](JobFile& file) {
    status->st_size = static_cast<off_t>(file.size());
    return 0;
  });
}

void Job::write_back(struct stat* status) {
  const std::uint32_t index = session_->segment().find(*status);
  if (index == kNone) return;
  const FileEntry& entry = session_->segment().file(index);
  const std::string path = entry.opened_path();
  struct stat fresh {};
  off_t size = 0;
  // What cannot be written is not seen by who reads the file either.
  const auto write_back = [&](JobFile& file) {
    // Its end may be another node's, which writes back no byte for this.
    if (nodes() > 1) size = static_cast<off_t>(file.size());
    return file.write_back();
  };
  with_open(path.c_str(), *status, entry, write_back);
  if (real().stat(path.c_str(), &fresh) == 0 && fresh.st_ino == status->st_ino &&
      fresh.st_dev == status->st_dev) {
    *status = fresh;
    status->st_size = std::max(status->st_size, size);
  }
}

int Job::step_aside(const char* path) {
  struct stat status {};
  if (real().stat(path, &status) != 0) return 0;  // the call itself will tell
  const std::uint32_t index = session_->segment().find(status);
  if (index == kNone) return 0;
  const FileEntry& entry = session_->segment().file(index);
  if (entry.deleted.load() != kKept) return 0;
  return with_open(path, status, entry, [](JobFile& file) { return file.step_aside(); });
}

int Job::step_aside(int fd, const struct stat& status) {
  return with_open(fd, status, [](JobFile& file) { return file.step_aside(); });
}

bool Job::has_open_files() {
  const std::lock_guard guard(mutex_);
  return std::any_of(files_.begin(), files_.end(),
                     [](const auto& file) { return file != nullptr; });
}

int Job::leave_files() {
  const std::lock_guard guard(mutex_);
  int first = 0;
  for (const auto& file : files_) {
    if (file == nullptr) continue;
    const int error = file->step_aside();
    // Where another node's manager is gone, what this node caches can still be written.
    if (error != 0) file->write_back();
    if (first == 0) first = error;
  }
  return first;
}

void Job::await_queued() {
  const std::lock_guard guard(mutex_);
  for (const auto& file : files_) {
    if (file != nullptr) file->await_queued();
  }
}

void Job::flush_for_good() {
  await_queued();
  session_->flush_for_good();
  await_queued();  // of what the program has written meanwhile
}

}  // namespace nvio
