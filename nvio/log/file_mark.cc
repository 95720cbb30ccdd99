#include "file_mark.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace nvio {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

std::uint64_t nanoseconds(const statx_timestamp& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * kSecond + time.tv_nsec;
}

bool has_type(int fd, long type) {
  struct statfs status {};
  return fstatfs(fd, &status) == 0 && static_cast<long>(status.f_type) == type;
}

void note_handle(int fd, FileMark& mark) {
  // Of FUSE a handle is the number that this mount's server gave the file, and another one later.
  if (has_type(fd, FUSE_SUPER_MAGIC)) {
    const ssize_t size = fgetxattr(fd, "glusterfs.gfid", mark.handle, sizeof mark.handle);
    if (size <= 0) return;
    mark.handle_type = kGlusterId;
    mark.handle_length = static_cast<std::uint32_t>(size);
    return;
  }
  alignas(file_handle) char room[sizeof(file_handle) + sizeof mark.handle] = {};
  auto* handle = reinterpret_cast<file_handle*>(room);
  handle->handle_bytes = sizeof mark.handle;
  int mount = 0;
  if (name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH) != 0) return;
  mark.handle_type = handle->handle_type;
  mark.handle_length = handle->handle_bytes;
  std::memcpy(mark.handle, handle->f_handle, handle->handle_bytes);
}

// What is put into a folder changes its time, but one that is counted in whole seconds stays the
// same for the rest of its second.
void note_folder(int fd, const std::string& path, FileMark& mark) {
  struct statx opened {};
  struct statx named {};
  struct statx status {};
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const auto look = [](int at, const char* name, int flags, struct statx& found) {
    return statx(at, name, flags | AT_STATX_FORCE_SYNC, STATX_CTIME | STATX_INO, &found) == 0;
  };
  if (!look(fd, "", AT_EMPTY_PATH, opened) || !look(AT_FDCWD, path.c_str(), 0, named) ||
      opened.stx_ino != named.stx_ino || !look(AT_FDCWD, folder.c_str(), 0, status)) {
    return;
  }
  const bool is_coarse = status.stx_ctime.tv_nsec == 0;
  constexpr std::int64_t kSettled = 2;
  if (is_coarse && std::time(nullptr) - status.stx_ctime.tv_sec < kSettled) return;
  mark.folder = status.stx_ino;
  mark.folder_changed = nanoseconds(status.stx_ctime);
}

bool is_same_handle(const FileMark& one, const FileMark& other) {
  return one.handle_type == other.handle_type && one.handle_length == other.handle_length &&
         std::memcmp(one.handle, other.handle, std::min(one.handle_length, 128U)) == 0;
}

}  // namespace

FileMark mark_of(int fd, const std::string& path) {
  FileMark mark{};
  note_handle(fd, mark);
  struct statx status {};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BTIME, &status) == 0 &&
      (status.stx_mask & STATX_BTIME) != 0) {
    mark.birth = nanoseconds(status.stx_btime);
  }
  if (!mark.tells_apart()) note_folder(fd, path, mark);
  return mark;
}

Same is_same_file(const FileMark& earlier, const FileMark& now) {
  const bool by_handle = earlier.handle_length != 0 && now.handle_length != 0;
  const bool by_birth = earlier.birth != 0 && now.birth != 0;
  if (by_handle && !is_same_handle(earlier, now)) return Same::no;
  if (by_birth && earlier.birth != now.birth) return Same::no;
  if (by_handle || by_birth) return Same::yes;
  const bool is_untouched = earlier.folder_changed != 0 && earlier.folder == now.folder &&
                            earlier.folder_changed == now.folder_changed;
  return is_untouched ? Same::yes : Same::in_doubt;
}

bool is_surely_another(const FileMark& one, int fd) {
  // GlusterFS gives no number out again, and asking it for the identifier costs a message.
  if (one.handle_length == 0 || one.handle_type == kGlusterId) return false;
  FileMark other{};
  note_handle(fd, other);
  return other.handle_length != 0 && !is_same_handle(one, other);
}

}  // namespace nvio
