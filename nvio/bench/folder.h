// A folder on tmpfs for a store, a file and a socket; gone afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace nvio::bench {

class Folder {
 public:
  Folder() {
    char name[] = "/dev/shm/nvio-bench-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("cannot make a folder in /dev/shm");
    path_ = name;
    std::filesystem::create_directory(path_ + "/store");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace nvio::bench
