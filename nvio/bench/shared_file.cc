#include "shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace nvio::bench {

SharedFile::SharedFile(const std::string& path, std::size_t size) : size_(size) {
  const auto refuse = [&path](int error) {
    throw std::runtime_error("cannot share memory by " + path + ": " + std::strerror(error));
  };
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) refuse(errno);
  // Room first: a page that tmpfs cannot give later would be a signal.
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(size));
  void* memory = MAP_FAILED;
  if (error == 0) memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int unmapped = errno;
  close(fd);
  if (error != 0) refuse(error);
  if (memory == MAP_FAILED) refuse(unmapped);
  memory_ = static_cast<char*>(memory);
  std::memset(memory_, 'b', size_);
}

SharedFile::~SharedFile() { munmap(memory_, size_); }

void SharedFile::touch() const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < size_; at += page) {
    static_cast<void>(*static_cast<const volatile char*>(memory_ + at));
  }
}

// Not inlined: the compiler would see that nobody looks at the copy.
void SharedFile::copy_out(std::uint64_t offset, std::vector<char>& buffer) const {
  std::memcpy(buffer.data(), memory_ + offset, buffer.size());
}

}  // namespace nvio::bench
