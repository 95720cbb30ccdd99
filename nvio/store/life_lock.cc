#include "life_lock.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "../system/real.h"

namespace nvio {
namespace {

// Bytes of `alive` that are locked; there need not be any.
constexpr off_t kLife = 0;
constexpr off_t kDoor = 1;

struct flock lock_of(off_t byte, LifeLock::Kind kind) {
  struct flock found {};
  found.l_type = static_cast<short>(kind);
  found.l_whence = SEEK_SET;
  found.l_start = byte;
  found.l_len = 1;
  return found;
}

bool lock(int fd, off_t byte, LifeLock::Kind kind, int command) {
  struct flock wanted = lock_of(byte, kind);
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
  struct flock found = lock_of(kLife, Kind::exclusive);
  return fcntl(fd_, F_OFD_GETLK, &found) == 0 ? Kind{found.l_type} : Kind::none;
}

bool LifeLock::is_removed() const { return nvio::is_removed(fd_); }

LifeLock::Door::Door(const LifeLock& life) : fd_(life.fd_) {
  lock(fd_, kDoor, Kind::exclusive, F_OFD_SETLKW);
}

LifeLock::Door::~Door() { lock(fd_, kDoor, Kind::none, F_OFD_SETLK); }

}  // namespace nvio
