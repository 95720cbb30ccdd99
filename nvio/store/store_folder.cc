#include "store_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "../system/real.h"

namespace nvio {
namespace {

// The groups that the system gives a user, and no others. The store's own group is none to go by:
// a folder takes it over from the one that it lies in.
bool take_groups_of(uid_t user) {
  constexpr gid_t kNoGroup = 65534;
  std::array<char, 16384> text{};
  passwd entry{};
  passwd* known = nullptr;
  if (getpwuid_r(user, &entry, text.data(), text.size(), &known) != 0 || known == nullptr) {
    return setgroups(0, nullptr) == 0 && setegid(kNoGroup) == 0;
  }
  return initgroups(known->pw_name, known->pw_gid) == 0 && setegid(known->pw_gid) == 0;
}

}  // namespace

StoreFolder::StoreFolder(std::string path)
    : path_(std::move(path)),
      fd_(real().open(path_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
  if (fd_ < 0 || real().fstat(fd_, &status_) != 0) error_ = errno;
}

StoreFolder::~StoreFolder() {
  if (fd_ >= 0) real().close(fd_);
}

std::string StoreFolder::why_no_store() const {
  if (error_ == ENOTDIR) return path_ + " is not a folder";
  if (error_ != 0) {
    errno = error_;
    return failed("there is no store at " + path_);
  }
  if (has("segment") || has("alive")) return {};
  const auto found = logs();
  if (!found) return failed("cannot list " + path_);
  if (!found->empty()) return {};
  return path_ + " is no store of nvio: it holds neither a segment nor a log";
}

bool StoreFolder::is_own() const {
  return is_open() && status_.st_uid == geteuid() && (status_.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

LifeLock::Kind StoreFolder::lock() const {
  const LifeLock alive(open("alive", O_RDWR));
  return alive.is_open() ? alive.of_others() : LifeLock::Kind::none;
}

bool StoreFolder::become_owner(std::string& why) const {
  const bool is_root = geteuid() == 0;
  if (!is_root && status_.st_uid != geteuid()) {
    why = "the store belongs to user " + std::to_string(status_.st_uid) + ", not to you";
    return false;
  }
  if ((status_.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    why = path_ + " can be written to by others than its owner, so nothing in it is trusted";
    return false;
  }
  if (!is_root || status_.st_uid == 0) return true;
  // Groups first: only root can change them.
  if (take_groups_of(status_.st_uid) && seteuid(status_.st_uid) == 0) return true;
  why = failed("cannot act as the store's owner");
  return false;
}

// By the descriptor, and so never by what the folder's name leads to by now.
std::string StoreFolder::inside(const std::string& name) const {
  return "/proc/self/fd/" + std::to_string(fd_) + "/" + name;
}

std::optional<std::vector<std::string>> StoreFolder::logs() const {
  std::vector<std::string> names;
  DIR* listing = opendir(inside(".").c_str());
  if (listing == nullptr) return std::nullopt;
  errno = 0;
  while (const dirent* entry = readdir(listing)) {
    std::string name = entry->d_name;
    if (name.size() > 5 && name.ends_with(".redo")) names.push_back(std::move(name));
    errno = 0;
  }
  const int error = errno;
  closedir(listing);
  errno = error;
  if (error != 0) return std::nullopt;
  // 10.redo comes after 2.redo.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

std::string StoreFolder::path_of(const std::string& name) const { return path_ + "/" + name; }

bool StoreFolder::has(const std::string& name) const {
  struct stat status {};
  return lstat(inside(name).c_str(), &status) == 0;
}

bool StoreFolder::is_from_before_the_boot(const std::string& name) const {
  struct stat status {};
  timespec now{};
  timespec up{};
  return lstat(inside(name).c_str(), &status) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0 &&
         clock_gettime(CLOCK_BOOTTIME, &up) == 0 && status.st_ctim.tv_sec < now.tv_sec - up.tv_sec;
}

int StoreFolder::open(const std::string& name, int flags) const {
  // Whose store it is may have laid down what would hold up who opens it.
  const int fd = real().open(inside(name).c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat status {};
  if (fd < 0 || (real().fstat(fd, &status) == 0 && S_ISREG(status.st_mode))) return fd;
  real().close(fd);
  errno = ENOTSUP;
  return -1;
}

void StoreFolder::remove(const std::string& name) const { real().unlink(inside(name).c_str()); }

void StoreFolder::persist() const { persist_folder(inside(".")); }

}  // namespace nvio
