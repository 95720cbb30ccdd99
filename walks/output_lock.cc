#include "output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

namespace walks {

OutputLock::OutputLock(const std::string& output) {
  const std::string path = output + ".lock";
  struct stat status {};
  do {
    if (fd_ >= 0) close(fd_);
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd_ < 0) return;
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd_);
      throw std::runtime_error("another run is making " + output +
                               "; choose another name, or wait for it");
    }
    // Who had it may have removed it, as its last act, since it was opened here.
  } while (fstat(fd_, &status) == 0 && status.st_nlink == 0);
  file_.emplace(path, true);
}

OutputLock::~OutputLock() {
  file_.reset();
  if (fd_ >= 0) close(fd_);
}

}  // namespace walks
