#include "life_lock.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "../system/real.h"

namespace nvio {
namespace {

// Bytes of `alive` that are locked; there need not be any.
constexpr off_t kLife = 0;
constexpr off_t kDoor = 1;

bool lock(int fd, off_t byte, LifeLock::Kind kind, int command) {
  struct flock wanted {};
  wanted.l_type = static_cast<short>(kind);
  wanted.l_whence = SEEK_SET;
  wanted.l_start = byte;
  wanted.l_len = 1;
  int result = 0;
  do {
    result = fcntl(fd, command, &wanted);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

LifeLock::LifeLock(LifeLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

LifeLock& LifeLock::operator=(LifeLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

LifeLock::~LifeLock() {
  if (fd_ >= 0) real().close(fd_);
}

bool LifeLock::share() { return lock(fd_, kLife, Kind::shared, F_OFD_SETLKW) && !is_removed(); }

bool LifeLock::take_alone() { return lock(fd_, kLife, Kind::exclusive, F_OFD_SETLK); }

void LifeLock::give_up() { lock(fd_, kLife, Kind::none, F_OFD_SETLK); }

LifeLock::Kind LifeLock::of_others() const {
  struct flock found {};
  found.l_type = F_WRLCK;
  found.l_whence = SEEK_SET;
  found.l_start = kLife;
  found.l_len = 1;
  return fcntl(fd_, F_OFD_GETLK, &found) == 0 ? Kind{found.l_type} : Kind::none;
}

bool LifeLock::is_removed() const {
  struct stat status {};
  return real().fstat(fd_, &status) != 0 || status.st_nlink == 0;
}

LifeLock::Door::Door(const LifeLock& life) : fd_(life.fd_) {
  lock(fd_, kDoor, Kind::exclusive, F_OFD_SETLKW);
}

LifeLock::Door::~Door() { lock(fd_, kDoor, Kind::none, F_OFD_SETLK); }

}  // namespace nvio
