#include "other_jobs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "../settings/launcher.h"
#include "../settings/own_stores.h"
#include "../settings/settled_time.h"
#include "../store/segment.h"
#include "../store/store_folder.h"
#include "../system/real.h"
#include "job.h"

namespace nvio {
namespace {

void tell(const Settings& settings, const std::string& why) {
  if (settings.quiet) return;
  std::fprintf(stderr, "nvio: %s; this process may read old bytes of a job's file\n", why.c_str());
}

// Whether a living job caches the file in this folder; its settings then say which job that is.
bool is_of_job_with(Settings& settings, std::string name, const struct stat& file) {
  const StoreFolder folder(settings.store + "/" + name);
  if (!folder.is_own()) return false;
  std::string why;
  const auto segment = Segment::open_existing(folder, why);
  if (segment == nullptr ? !folder.has("segment") : segment->find(file) == kNone) return false;
  if (folder.lock() != LifeLock::Kind::shared) return false;
  if (segment == nullptr) {
    tell(settings, why);
    return false;
  }
  settings.nodes = segment->header().nodes.load();
  settings.node = 0;
  if (const std::size_t dot = name.rfind(".node"); settings.nodes > 1 && dot != name.npos) {
    settings.node = static_cast<std::uint32_t>(std::strtoul(name.c_str() + dot + 5, nullptr, 10));
    name.resize(dot);
  }
  settings.session = name.substr(StorePrefix().length());
  return true;
}

// The stores that were found last in their folder: this is asked for at each call by name. In room
// of its own, since memory may not be had (settings/own_stores.h).
struct Known {
  std::int64_t changed = 0;  // when the folder was; 0: they must be looked up anew
  std::size_t count = 0;
  char names[8][NAME_MAX + 1] = {};
};
constinit Known g_known;

// Of one user at a time: who meets another, perhaps one that his signal handler has interrupted,
// does without.
class UseOfKnown {
 public:
  UseOfKnown() = default;
  ~UseOfKnown() {
    if (is_ours_) in_use_.store(false, std::memory_order_release);
  }
  UseOfKnown(const UseOfKnown&) = delete;
  UseOfKnown& operator=(const UseOfKnown&) = delete;
  bool is_ours() const { return is_ours_; }

 private:
  static inline constinit std::atomic<bool> in_use_{false};
  const bool is_ours_ = !in_use_.exchange(true, std::memory_order_acquire);
};

// False where there are more than can be known.
bool look_up(Known& known, const char* folder) {
  struct stat status {};
  const std::int64_t changed = real().stat(folder, &status) == 0 ? settled_time(status) : 0;
  if (changed != 0 && changed == known.changed) return true;
  known.changed = 0;
  known.count = 0;
  bool fits = true;
  each_own_store(folder, [&](const char* name) {
    fits = known.count < std::size(known.names);
    if (fits) std::snprintf(known.names[known.count++], sizeof *known.names, "%s", name);
    return fits;
  });
  if (fits) known.changed = changed;
  return fits;
}

template <typename Act>
void each_store(const char* folder, Act&& act) {
  const UseOfKnown use;
  if (use.is_ours() && look_up(g_known, folder)) {
    for (std::size_t i = 0; i < g_known.count; ++i) act(g_known.names[i]);
    return;
  }
  each_own_store(folder, [&](const char* name) {
    act(name);
    return true;
  });
}

// Whether the file may be in the store of that name.
bool may_hold(const char* folder, const char* name, const struct stat& file) {
  // No longer: a handler's stack may be small.
  char path[std::size_t{2} * NAME_MAX + sizeof "//segment"];
  const int length = std::snprintf(path, sizeof path, "%s/%s/segment", folder, name);
  return static_cast<std::size_t>(length) >= sizeof path || Segment::may_hold(path, file);
}

// Calls act(job) for each job that caches the file; returns the first error of one, or 0.
template <typename Act>
int each_job_with(const Settings& settings, const struct stat& file, Act&& act) {
  int error = 0;
  each_store(settings.store.c_str(), [&](const char* name) {
    if (!may_hold(settings.store.c_str(), name, file)) return;
    Settings theirs = settings;
    if (!is_of_job_with(theirs, name, file)) return;
    std::string why;
    const auto job = Job::join(theirs, why);
    if (job == nullptr) tell(settings, why);
    const int failed = job != nullptr ? act(*job) : 0;
    if (error == 0) error = failed;
  });
  return error;
}

}  // namespace

bool others_have_store(const Settings& settings) {
  const std::string path = store_folder(settings, settings.node.value_or(0));
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
      access((path + "/segment").c_str(), F_OK) != 0) {
    return false;
  }
  const StoreFolder folder(path);
  const int fd = folder.open("segment", O_RDONLY);
  if (fd < 0) return true;  // for want of a descriptor: nobody can say, and others may
  const bool joinable = Segment::is_joinable(fd);
  real().close(fd);
  return joinable && folder.lock() != LifeLock::Kind::none;
}

bool has_store(const Settings& settings) {
  const std::string path = store_folder(settings, settings.node.value_or(0));
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return errno != ENOENT;
  const StoreFolder folder(path);
  const auto logs = folder.logs();
  return folder.has("segment") || !logs || !logs->empty();
}

int step_aside_elsewhere(const Settings& settings, const char* path) {
  struct stat status {};
  if (real().stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return each_job_with(settings, status, [path](Job& job) { return job.step_aside(path); });
}

int step_aside_elsewhere(const Settings& settings, int fd) {
  struct stat status {};
  if (real().fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return each_job_with(settings, status, [&](Job& job) { return job.step_aside(fd, status); });
}

void opened_outside(const Settings& settings, int fd) {
  const PathOfDescriptor path(fd);
  if (const int error = step_aside_elsewhere(settings, path.c_str()); error != 0) {
    tell(settings, std::string("cannot write back what is cached: ") + std::strerror(error));
  }
}

void write_back_elsewhere(const Settings& settings, struct stat* status) {
  each_job_with(settings, *status, [status](Job& job) {
    job.write_back(status);
    return 0;
  });
}

}  // namespace nvio
