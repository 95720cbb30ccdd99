// Sessions in one store, and what of their file's bytes is where.
#pragma once

#include <string>

#include "cached_file_fixture.h"

namespace nvio {

constexpr std::uint64_t kPlace = 1 << 20;

class LeftOverTest : public CachedFileTest {
 protected:
  CachedFile* open_in(Session& session, int flags = O_RDWR | O_CREAT) {
    const int fd = open_file(flags);
    CachedFile* file = session.acquire(fd, path_, settings_.file);
    EXPECT_NE(file, nullptr);
    ::close(fd);
    return file;
  }

  static void put(CachedFile& file, const std::string& bytes) {
    EXPECT_EQ(file.write(kPlace, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  std::string at_place() { return file_content().substr(kPlace); }
};

}  // namespace nvio
