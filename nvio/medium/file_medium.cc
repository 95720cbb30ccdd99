#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "../system/real.h"
#include "medium.h"

namespace nvio {
namespace {

class FileMedium : public Medium {
 public:
  FileMedium(int fd, std::string path, Survives survives)
      : fd_(fd), path_(std::move(path)), survives_(survives) {}
  FileMedium(const FileMedium&) = delete;
  FileMedium& operator=(const FileMedium&) = delete;
  ~FileMedium() override { real().close(fd_); }

  int reserve(std::uint64_t size) override { return reserve_up_to(fd_, size); }

  int write(std::uint64_t offset, const void* data, std::size_t length) override {
    return write_own(fd_, data, length, static_cast<off_t>(offset)) < 0 ? errno : 0;
  }

  int persist() override {
    if (survives_ == Survives::processes) return 0;
    return real().fdatasync(fd_) == 0 ? 0 : errno;
  }

  int persist_name() override {
    return survives_ == Survives::processes ? 0 : persist_name_of(path_);
  }

  Survives survives() const override { return survives_; }

 private:
  int fd_;
  std::string path_;
  Survives survives_;
};

std::unique_ptr<Medium> open_medium(const std::string& path, Survives survives, std::string& why) {
  const int fd = real().open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    why = failed("cannot open " + path);
    return nullptr;
  }
  return std::make_unique<FileMedium>(fd, path, survives);
}

}  // namespace

std::unique_ptr<Medium> open_tmpfs_medium(const std::string& path, std::string& why) {
  return open_medium(path, Survives::processes, why);
}

std::unique_ptr<Medium> open_file_medium(const std::string& path, std::string& why) {
  return open_medium(path, Survives::machine, why);
}

}  // namespace nvio
