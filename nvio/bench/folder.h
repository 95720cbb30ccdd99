// A folder on tmpfs for a store, a file and a socket; gone afterwards.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

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
    // Managers of a job that has just ended may still take their own files away.
    constexpr int kTimes = 500;
    for (int i = 0; i < kTimes && std::filesystem::exists(path_); ++i) {
      std::error_code busy;
      std::filesystem::remove_all(path_, busy);
      if (busy) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace nvio::bench
