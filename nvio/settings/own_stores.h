// This user's stores in a folder. They are looked for at calls like open and stat, which a signal
// handler may make that has interrupted malloc: so no memory is taken, as opendir would. Shared
// with the loader, which links the C library alone.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

namespace nvio {

// What the name of each of them begins with; the job's is behind it.
class StorePrefix {
 public:
  StorePrefix()
      : length_(static_cast<std::size_t>(
            std::snprintf(text_, sizeof text_, "nvio-%u-", static_cast<unsigned>(geteuid())))) {}
  const char* c_str() const { return text_; }
  std::size_t length() const { return length_; }
  bool begins(const char* name) const { return std::strncmp(name, text_, length_) == 0; }

 private:
  char text_[24];
  std::size_t length_;
};

// Calls act(name) for each, till one returns false.
template <typename Act>
void each_own_store(const char* folder, Act&& act) {
  const auto fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0) return;
  const StorePrefix ours;
  alignas(dirent64) char entries[1024];  // a handler's stack may be small
  bool goes_on = true;
  while (goes_on) {
    const long length = syscall(SYS_getdents64, fd, entries, sizeof entries);
    if (length <= 0) break;
    for (long at = 0; goes_on && at < length;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      if (ours.begins(entry->d_name)) goes_on = act(entry->d_name);
    }
  }
  syscall(SYS_close, fd);
}

}  // namespace nvio
