#include "other_jobs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "../cache/segment.h"
#include "../posix/real.h"
#include "../recovery/store_folder.h"
#include "job.h"

namespace nvio {
namespace {

// Whether a living job caches the file in this folder; its settings then say which job that is.
bool is_of_job_with(Settings& settings, std::string name, const struct stat& file) {
  const StoreFolder folder(settings.store + "/" + name);
  if (!folder.is_own()) return false;
  std::string why;
  const auto segment =
      Segment::open_existing(folder.open("segment", O_RDONLY), folder.path_of("segment"), why);
  if (segment == nullptr || segment->find(file) == kNone) return false;
  if (folder.lock() != StoreFolder::Lock::shared) return false;
  settings.nodes = segment->header().nodes.load();
  settings.node = 0;
  if (const std::size_t dot = name.rfind(".node"); settings.nodes > 1 && dot != name.npos) {
    settings.node = static_cast<std::uint32_t>(std::stoul("0" + name.substr(dot + 5)));
    name.resize(dot);
  }
  const std::size_t user = name.find('-') + 1;
  settings.session = name.substr(name.find('-', user) + 1);
  return true;
}

void tell(const Settings& settings, const std::string& why) {
  if (settings.quiet) return;
  std::fprintf(stderr, "nvio: %s; this process may read old bytes of a job's file\n", why.c_str());
}

// Calls act(job) for each job that caches the file; returns the first error of one, or 0.
template <typename Act>
int each_job_with(const Settings& settings, const struct stat& file, Act&& act) {
  DIR* listing = opendir(settings.store.c_str());
  if (listing == nullptr) return 0;
  const std::string ours = "nvio-" + std::to_string(geteuid()) + "-";
  int error = 0;
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    Settings theirs = settings;
    if (!name.starts_with(ours) || !is_of_job_with(theirs, name, file)) continue;
    std::string why;
    const auto job = Job::join(theirs, why);
    if (job == nullptr) tell(settings, why);
    const int failed = job != nullptr ? act(*job) : 0;
    if (error == 0) error = failed;
  }
  closedir(listing);
  return error;
}

}  // namespace

int step_aside_elsewhere(const Settings& settings, const char* path) {
  struct stat status {};
  if (real().stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return each_job_with(settings, status, [path](Job& job) { return job.step_aside(path); });
}

void opened_outside(const Settings& settings, int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (const int error = step_aside_elsewhere(settings, path.c_str()); error != 0) {
    tell(settings, std::string("cannot write back what is cached: ") + std::strerror(error));
  }
}

void correct_size_elsewhere(const Settings& settings, struct stat* status) {
  each_job_with(settings, *status, [status](Job& job) {
    job.correct_size(status);
    return 0;
  });
}

}  // namespace nvio
