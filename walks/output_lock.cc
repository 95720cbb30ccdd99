#include "output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "header.h"

namespace walks {
namespace {

// What a killed run left: a matrix, whose header comes last, or a text.
bool is_left_over(const std::string& path) {
  std::array<char, 8> start{};
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), start.size());
  if (file.gcount() == 0 && !file.eof()) return false;  // nobody may look
  return start == std::array<char, 8>{} || looks_like_matrix(std::as_bytes(std::span(start))) ||
         std::string_view(start.data(), start.size()) == "%%Matrix";
}

[[noreturn]] void refuse(const std::string& path) {
  throw std::runtime_error(path +
                           " is no file of walks, which would remove it; move it, or choose "
                           "another name for the output");
}

}  // namespace

OutputLock::OutputLock(const std::string& output) {
  for (const char* const beside : {".partial", ".scratch0", ".scratch1", ".import"}) {
    std::error_code absent;
    const auto there = std::filesystem::symlink_status(output + beside, absent);
    if (!exists(there) || (is_regular_file(there) && is_left_over(output + beside))) continue;
    refuse(output + beside);
  }
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
  if (!S_ISREG(status.st_mode) || status.st_size > 0) {
    close(fd_);
    refuse(path);
  }
  file_.emplace(path, true);
}

OutputLock::~OutputLock() {
  file_.reset();
  if (fd_ >= 0) close(fd_);
}

}  // namespace walks
