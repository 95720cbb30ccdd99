#include "mount_source.h"

#include <sys/sysmacros.h>

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
std::string mount_source(dev_t device) {
  std::string table;
  if (!read_text("/proc/self/mountinfo", table)) return {};
  const std::string wanted = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  for (std::string_view lines = table; !lines.empty();) {
    std::string_view line = take(lines, '\n');
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view rest = line.substr(dash + 3);
    take(line);
    take(line);
    if (take(line) != wanted) continue;
    const std::string type(take(rest));
    return type + " " + std::string(take(rest));
  }
  return {};
}

}  // namespace nvio
