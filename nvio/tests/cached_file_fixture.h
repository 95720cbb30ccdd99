// A file, and a store of its own for the processes that cache it; both go with the test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>

#include "../cache/cached_file.h"
#include "temporary_store.h"

namespace nvio {

namespace fs = std::filesystem;

// As if calls on the file had been found slow.
inline void seem_slow(CachedFile& file) {
  FileEntry& entry = file.entry();
  entry.read_samples = entry.write_samples = 100;
  entry.slow_reads = entry.slow_writes = 1;
  entry.read_seconds = entry.write_seconds = 1e-3F;
}

class CachedFileTest : public ::testing::Test, protected TemporaryStore {
 protected:
  CachedFileTest() : TemporaryStore("test") {}

  void SetUp() override {
    settings_.capacity = 2 << 20;
    settings_.file.admit = Admit::always;
  }

  std::unique_ptr<Session> join() {
    std::string why;
    auto session = Session::join(settings_, why);
    EXPECT_NE(session, nullptr) << why;
    return session;
  }

  // Managers end by themselves once nobody is connected, and take their stores away.
  void expect_store_to_go() {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!fs::is_empty(settings_.store) && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_TRUE(fs::is_empty(settings_.store)) << "a manager or its store outlives its processes";
  }

  int open_file(int flags = O_RDWR | O_CREAT) { return ::open(path_.c_str(), flags, 0600); }

  // Calls act(file) or act(file, session) in a process of its own, the session's only one, which is
  // killed right after.
  template <typename Act>
  void be_killed_after(int fd, Act&& act) {
    const pid_t child = fork();
    if (child == 0) {
      std::string why;
      const auto session = Session::join(settings_, why);
      CachedFile* file = session == nullptr ? nullptr : session->acquire(fd, path_, settings_.file);
      if (file == nullptr) _exit(3);
      if constexpr (std::is_invocable_v<Act, CachedFile&, Session&>) {
        act(*file, *session);
      } else {
        act(*file);
      }
      kill(getpid(), SIGKILL);
    }
    waitpid(child, nullptr, 0);
  }

  // A killed job's store of a file of which "synced" is.
  void leave_synced() {
    const int fd = open_file();
    be_killed_after(fd, [](CachedFile& file) {
      file.write(0, "synced", 6);
      file.sync();
    });
    ::close(fd);
  }

  std::string file_content() {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder() const {
    return settings_.store + "/nvio-" + std::to_string(geteuid()) + "-test";
  }
};

}  // namespace nvio
