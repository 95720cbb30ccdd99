#include "other_jobs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../settings/launcher.h"
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
  settings.session = name.substr(store_prefix().size());
  return true;
}

// The names of this user's stores, as they stand in the folder of stores.
std::vector<std::string> stores_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return names;
  const std::string ours = store_prefix();
  while (const dirent* entry = readdir(listing)) {
    std::string name = entry->d_name;
    if (name.starts_with(ours)) names.push_back(std::move(name));
  }
  closedir(listing);
  return names;
}

// The same, looked up anew where the folder has changed: this is asked for at each call by name.
const std::vector<std::string>& known_stores(const std::string& folder) {
  thread_local std::vector<std::string> names;
  thread_local std::int64_t known = 0;
  struct stat status {};
  const std::int64_t changed = real().stat(folder.c_str(), &status) == 0 ? settled_time(status) : 0;
  if (changed == 0 || changed != known) names = stores_in(folder);
  known = changed;
  return names;
}

// Calls act(job) for each job that caches the file; returns the first error of one, or 0.
template <typename Act>
int each_job_with(const Settings& settings, const struct stat& file, Act&& act) {
  int error = 0;
  for (const std::string& name : known_stores(settings.store)) {
    if (!Segment::may_hold((settings.store + "/" + name + "/segment").c_str(), file)) continue;
    Settings theirs = settings;
    if (!is_of_job_with(theirs, name, file)) continue;
    std::string why;
    const auto job = Job::join(theirs, why);
    if (job == nullptr) tell(settings, why);
    const int failed = job != nullptr ? act(*job) : 0;
    if (error == 0) error = failed;
  }
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
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
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
