#include "mount_source.h"

#include <algorithm>
#include <string_view>

#include "../system/real.h"

namespace nvio {
namespace {

// Takes the next word off `text`, up to `end` or all of it.
std::string_view take(std::string_view& text, char end = ' ') {
  const std::size_t stop = std::min(text.find(end), text.size());
  const std::string_view word = text.substr(0, stop);
  text.remove_prefix(std::min(stop + 1, text.size()));
  return word;
}

}  // namespace

// Lines of /proc/self/mountinfo: ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELDS] - TYPE SOURCE
// ...
// By hand: the C++ library's streams would make the library, which every process opens, twice
// as large.
// Not by the device's number: btrfs and overlayfs give files others than the table has.
std::string mount_source(int fd) {
  constexpr std::string_view kMount = "mnt_id:\t";
  std::string facts;
  std::string table;
  if (!read_text("/proc/self/fdinfo/" + std::to_string(fd), facts) ||
      !read_text("/proc/self/mountinfo", table)) {
    return {};
  }
  const std::size_t mount = facts.find(kMount);
  if (mount == std::string::npos) return {};
  std::string_view rest_of_facts = std::string_view(facts).substr(mount + kMount.size());
  const std::string_view wanted = take(rest_of_facts, '\n');
  for (std::string_view lines = table; !lines.empty();) {
    std::string_view line = take(lines, '\n');
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view rest = line.substr(dash + 3);
    if (take(line) != wanted) continue;
    const std::string type(take(rest));
    return type + " " + std::string(take(rest));
  }
  return {};
}

}  // namespace nvio
