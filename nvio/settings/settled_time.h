// When a folder was changed last, for who keeps what was found in it: as long as that is the same,
// nothing has come or gone. Shared with the loader, which links the C library alone.
#pragma once

#include <sys/stat.h>
#include <time.h>

#include <cstdint>

namespace nvio {

// In ns, to be asked for before the folder is looked into; 0: so lately that another change might
// leave the same time, within a step of the kernel's clock.
inline std::int64_t settled_time(const struct stat& folder) {
  constexpr std::int64_t kSecond = 1000000000;
  constexpr std::int64_t kStep = 100000000;
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  const std::int64_t changed = folder.st_mtim.tv_sec * kSecond + folder.st_mtim.tv_nsec;
  return now.tv_sec * kSecond + now.tv_nsec > changed + kStep ? changed : 0;
}

}  // namespace nvio
