// The C library's functions past the interposition, for all I/O that nvio does itself. In the
// preloaded library they come from the loader; in the manager and the command line, where nothing
// is interposed, they are the C library's at once.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "real_posix.h"

namespace nvio {

const RealPosix& real();
void set_real(const RealPosix* posix);

// Where the kernel shows the file of a descriptor of this process: to be opened anew. It takes no
// memory, which there may be none of.
class PathOfDescriptor {
 public:
  explicit PathOfDescriptor(int fd) { std::snprintf(text_, sizeof text_, "/proc/self/fd/%d", fd); }
  const char* c_str() const { return text_; }

 private:
  char text_[32];
};

// Whole transfers: repeat what was interrupted or came short. Both return the bytes done (a read
// stops early only at end of file), or -1 with errno.
ssize_t read_fully(int fd, void* buffer, std::size_t length, off_t offset);
ssize_t write_fully(int fd, const void* buffer, std::size_t length, off_t offset);
// `vectors` is used up.
ssize_t write_vectors_fully(int fd, iovec* vectors, int count, off_t offset);

// Bytes of all of them.
std::uint64_t total_of(const iovec* vectors, int count);

// Whether the file behind the descriptor has no name left; so it counts too if nobody can tell.
bool is_removed(int fd);

// Whether this process may make files so long. Where it may not, what tries is not only refused:
// the kernel ends the program (SIGXFSZ), which never asked for such a file.
bool may_reach(std::uint64_t end);
// As write_fully for files that are nvio's own, not the program's: EFBIG instead of that.
ssize_t write_own(int fd, const void* buffer, std::size_t length, off_t offset);

// Reserves a file's room: as posix_fallocate, but not to be kept from it by signals, as tmpfs is
// before Linux 6.10. Returns an errno value.
int reserve_room(int fd, std::uint64_t offset, std::uint64_t length);
// The same of all beyond the file's present end: tmpfs would walk through what it has already.
int reserve_up_to(int fd, std::uint64_t size);

// The content of a small text file (of /proc, a configuration); false when it cannot be read. The
// C++ library's streams would cost each process's first open more than all the rest of nvio.
bool read_text(const std::string& path, std::string& text);

// What was made, renamed and removed in a folder stays so when the machine restarts. Returns an
// errno value; 0 too where a file system does so unasked.
int persist_folder(const std::string& folder);
// The same for the name of a file that was just made, and for its folder's.
int persist_name_of(const std::string& path);
// The folder that holds the last name of a path.
std::string folder_of(const std::string& path);

// Absolute, links of the folder resolved; empty when the folder does not exist.
std::string absolute_path(const char* path);

// `what` with errno in words.
std::string failed(const std::string& what);

}  // namespace nvio
