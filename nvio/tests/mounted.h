// A file system of its own, for as long as the object lives.
#pragma once

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <string>
#include <utility>

namespace nvio {

class Mounted {
 public:
  Mounted(const char* type, std::string path, const std::string& options = {})
      : path_(std::move(path)) {
    std::filesystem::create_directory(path_);
    EXPECT_EQ(mount(type, path_.c_str(), type, 0, options.c_str()), 0);
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  ~Mounted() { umount(path_.c_str()); }

 private:
  std::string path_;
};

}  // namespace nvio
