#include "mount_source.h"

#include <sys/sysmacros.h>

#include <sstream>

#include "../posix/real.h"

namespace nvio {

// Lines of /proc/self/mountinfo: ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELDS] - TYPE SOURCE
// ...
std::string mount_source(dev_t device) {
  std::string table;
  if (!read_text("/proc/self/mountinfo", table)) return {};
  const std::string wanted = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id;
    std::string parent;
    std::string number;
    words >> id >> parent >> number;
    const std::size_t dash = line.find(" - ");
    if (number != wanted || dash == std::string::npos) continue;
    std::istringstream rest(line.substr(dash + 3));
    std::string type;
    std::string source;
    rest >> type >> source;
    return type + " " + source;
  }
  return {};
}

}  // namespace nvio
