// What tells a file from every other, also from a later one that got its name and the number of its
// inode: file systems give numbers of deleted files out again, ext4 the very next time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace nvio {

// Stands as it is in the redo log and in the segment. All of it stays the same when the file system
// is mounted again, also after a restart.
struct FileMark {
  std::uint64_t birth;           // nanoseconds since 1970; 0: the file system does not tell
  std::uint64_t folder;          // inode of the folder that holds the name, and when an entry of it
  std::uint64_t folder_changed;  // last changed, ns since 1970; 0: nothing to go by
  std::int32_t handle_type;      // as name_to_handle_at says, or kGlusterId
  std::uint32_t handle_length;   // 0: the file system gives none that lasts
  std::byte handle[128];         // holds the inode's generation

  bool tells_apart() const { return birth != 0 || handle_length != 0; }
};
static_assert(sizeof(FileMark) == 160);

constexpr std::int32_t kGlusterId = 0x10000;  // above any type of the kernel's

// Of an open file; `path` is absolute.
FileMark mark_of(int fd, const std::string& path);

enum class Same : std::uint8_t { yes, no, in_doubt };

// Whether two marks of one inode are of one file. Both the handle and the birth must agree where
// both marks have them. Where neither is there (FUSE but for GlusterFS, ...) it is one file if no
// entry of its folder was changed in between, and in doubt otherwise.
Same is_same_file(const FileMark& earlier, const FileMark& now);
// The same for files that are both open, told by the handles alone: of files on an overlay the
// birth is another one after the first opening for writing.
bool is_surely_another(const FileMark& one, int fd);

}  // namespace nvio
