// Sessions in one store, and what of their file's bytes is where.
#pragma once

#include <string>
#include <utility>

#include "../settings/launcher.h"
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

  // What another job of the session on several nodes left, killed right after act(file, session),
  // is to be recovered before the next begins. Returns the store's folder.
  template <typename Act>
  std::string expect_refusal_beside(Act&& act) {
    settings_.nodes = 2;
    settings_.node = 0;
    settings_.session = "test.0000000a";
    const int fd = open_file();
    be_killed_after(fd, std::forward<Act>(act));
    ::close(fd);
    const std::string left = store_folder(settings_, 0);
    settings_.session = "test.0000000b";
    std::string why;
    EXPECT_EQ(Session::join(settings_, why), nullptr);
    EXPECT_NE(why.find("nvio recover --latest " + left), std::string::npos) << why;
    return left;
  }

  std::string at_place() { return file_content().substr(kPlace); }
};

}  // namespace nvio
