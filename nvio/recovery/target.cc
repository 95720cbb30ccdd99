#include "target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "../system/random_ending.h"
#include "../system/real.h"

namespace nvio {

Target::Target(const FileIdentity& file, const RecoverOptions& options, RecoveredFile& line,
               std::vector<NewFile>& made)
    : file_(file), options_(options), line_(line) {
  std::string why;
  fd_ = open_itself(why);
  is_moot_ = file_.deleted && fd_ == -ENOENT;
  if (is_moot_) return;
  if (fd_ < 0 && !options_.to.empty()) {
    line_.instead = options_.to + file_.path;
    if (!options_.dry_run) fd_ = open_instead(made, why);
    if (fd_ >= 0 || options_.dry_run) why.clear();
  }
  line_.problem = why;
}

Target::~Target() {
  if (fd_ >= 0) real().close(fd_);
}

int Target::open_itself(std::string& why) const {
  const int fd = real().open(file_.path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    const int error = -errno;
    why = failed("cannot open it");
    return error;
  }
  struct stat status {};
  Same same = Same::no;
  if (real().fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_ino == file_.inode) {
    same = is_same_file(file_.mark, mark_of(fd, file_.path));
  }
  if (same == Same::yes || (same == Same::in_doubt && options_.force)) return fd;
  why = same == Same::no
            ? "there is another file of this name now; it is left alone"
            : "whether this is still the file that was cached cannot be told on its file system "
              "once something was made or removed beside it; it is left alone (if it is: --force)";
  real().close(fd);
  return same == Same::no ? -ENOENT : -1;
}

// What lies there already is not ours, unless this recovery made it.
int Target::open_instead(std::vector<NewFile>& made, std::string& why) const {
  const std::string& path = line_.instead;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const auto known =
      std::ranges::find_if(made, [&](const NewFile& file) { return file.path == path; });
  const bool is_ours = known != made.end();
  const std::string partial = is_ours ? known->partial : path + random_ending() + ".partial";
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (is_ours ? 0 : O_CREAT | O_EXCL);
  const bool is_taken = std::filesystem::exists(std::filesystem::symlink_status(path, error));
  errno = EEXIST;
  const int fd = is_taken ? -1 : real().open(partial.c_str(), flags, 0600);
  if (fd < 0) why += failed("; cannot make " + (is_taken ? path : partial));
  if (fd >= 0 && !is_ours) {
    made.push_back({path, partial});
    // The store goes once its bytes are here.
    for (std::string at = path; at.size() > options_.to.size();) {
      at = folder_of(at);
      persist_folder(at);
    }
  }
  return fd;
}

bool take_name(const NewFile& file) {
  const char* from = file.partial.c_str();
  const char* to = file.path.c_str();
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) != 0) {
    // NFS and others know no such renaming.
    if (errno != EINVAL && errno != ENOSYS) return false;
    if (link(from, to) != 0) return false;
    real().unlink(from);
  }
  persist_folder(folder_of(file.path));
  return true;
}

void Target::write(std::uint64_t offset, const void* data, std::size_t length) {
  constexpr std::size_t kMost = 1 << 20;
  if (fd_ < 0 || options_.dry_run) return;
  if (offset != from_ + pending_.size() || pending_.size() + length > kMost) write_out();
  if (pending_.empty()) from_ = offset;
  const auto* bytes = static_cast<const char*>(data);
  pending_.insert(pending_.end(), bytes, bytes + length);
}

void Target::write_out() {
  if (!pending_.empty() && line_.problem.empty() &&
      write_fully(fd_, pending_.data(), pending_.size(), static_cast<off_t>(from_)) < 0) {
    line_.problem = failed("cannot write it");
  }
  pending_.clear();
}

void Target::finish(std::uint64_t size) {
  if (fd_ < 0 || options_.dry_run) return;
  write_out();
  const bool done = make_as_long_as(size) && real().fsync(fd_) == 0;
  if (!done && line_.problem.empty()) line_.problem = failed("cannot make it durable");
}

// Bytes at the end that were never written are a hole that the size alone makes. Not by ftruncate,
// but in what this recovery made: another job may be appending.
bool Target::make_as_long_as(std::uint64_t size) {
  struct stat status {};
  if (real().fstat(fd_, &status) != 0) return false;
  if (static_cast<std::uint64_t>(status.st_size) >= size) return true;
  int made = 0;
  do {
    made = fallocate(fd_, 0, static_cast<off_t>(size - 1), 1);
  } while (made != 0 && errno == EINTR);
  if (made == 0) return true;
  if (errno != EOPNOTSUPP) return false;
  if (!line_.instead.empty()) return real().ftruncate(fd_, static_cast<off_t>(size)) == 0;
  if (line_.problem.empty()) {
    line_.problem =
        "its file system makes it longer by truncation alone, which would cut off what "
        "others append; once nobody writes it: truncate -s " +
        std::to_string(size) + " " + file_.path + ", and recover again";
  }
  return false;
}

}  // namespace nvio
