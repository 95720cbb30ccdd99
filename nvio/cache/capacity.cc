#include "capacity.h"

#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cstdlib>

#include "../store/segment.h"
#include "../system/real.h"

namespace nvio {
namespace {

std::uint64_t first_number(const std::string& path) {
  std::string text;
  if (!read_text(path, text) || text.empty() || text[0] < '0' || text[0] > '9') {
    return UINT64_MAX;  // "max" is no number
  }
  return std::strtoull(text.c_str(), nullptr, 10);
}

// The memory limit that the job's control group sets, in bytes; UINT64_MAX without one. Pages of
// a tmpfs count against it like any other memory of the job.
std::uint64_t memory_limit() {
  std::uint64_t limit = UINT64_MAX;
  std::string groups;
  if (!read_text("/proc/self/cgroup", groups)) return limit;
  for (std::size_t next = 0; next < groups.size();) {
    const std::size_t stop = std::min(groups.find('\n', next), groups.size());
    const std::string line = groups.substr(next, stop - next);
    next = stop + 1;
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* name = v2 ? "/memory.max" : "/memory.limit_in_bytes";
    // The limit of any level counts; levels outside of our view are simply not there.
    for (std::string at = path;; at = at.substr(0, at.rfind('/'))) {
      limit = std::min(limit, first_number(root + (at == "/" ? "" : at) + name));
      if (at.empty() || at == "/") break;
    }
  }
  return limit;
}

// What this process is limited to (setrlimit); RLIM_INFINITY is a large number, too.
std::uint64_t limit_of(__rlimit_resource_t what) {
  rlimit limit{};
  return getrlimit(what, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }
std::string in_kib(std::uint64_t bytes) { return std::to_string(bytes >> 10) + " KiB"; }

}  // namespace

bool is_tmpfs(const std::string& path) {
  struct statfs status {};
  return statfs(path.c_str(), &status) == 0 && status.f_type == TMPFS_MAGIC;
}

std::uint64_t choose_capacity(const Settings& settings, bool tmpfs, std::string& why) {
  struct statfs status {};
  if (statfs(settings.store.c_str(), &status) != 0) {
    why = failed("cannot look at the store " + settings.store);
    return 0;
  }
  const auto room =
      static_cast<std::uint64_t>(status.f_bavail) * static_cast<std::uint64_t>(status.f_bsize);
  std::uint64_t most = room / 2;
  if (tmpfs) most = std::min(most, memory_limit() / 2);
  const std::uint64_t longest = Segment::capacity_within(limit_of(RLIMIT_FSIZE));
  const std::uint64_t set = settings.capacity;
  if (set > most) {
    why = "a store of " + in_mib(set) + " is more than half of " +
          (tmpfs ? "the memory that the job or the tmpfs has left" : "the room left") + " at " +
          settings.store + " (" + in_mib(most) +
          " at most): set NVIO_CAPACITY lower or NVIO_STORE elsewhere";
    return 0;
  }
  if (set > longest) {
    why = "a store of " + in_mib(set) + " is a longer file than this process may make (" +
          in_mib(longest) + " at most): set NVIO_CAPACITY lower or ulimit -f higher";
    return 0;
  }
  if (set != 0 && set < kGroupSize) {
    why = "a store of " + in_kib(set) + " is too small: the smallest has " + in_kib(kGroupSize) +
          " (NVIO_CAPACITY)";
    return 0;
  }
  if (set != 0) return set;
  // It stays mapped, and what the program asks for later must still be had.
  constexpr std::uint64_t kShare = 8;
  const std::uint64_t allowed =
      std::min(longest, Segment::capacity_within(limit_of(RLIMIT_AS) / kShare));
  if (std::min(most / 2, allowed) >= kGroupSize) return std::min(most / 2, allowed);
  why =
      allowed < kGroupSize
          ? "the limits of this process (ulimit -f, ulimit -v) leave no room for a store"
          : "there is no room for a store at " + settings.store + " (" + in_kib(most) + " to use)";
  return 0;
}

}  // namespace nvio
