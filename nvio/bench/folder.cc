#include "folder.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace nvio::bench {
namespace {

// Managers of a job that has just ended may still take their own files away.
void sweep(const std::string& path) {
  constexpr int kTimes = 500;
  for (int i = 0; i < kTimes && std::filesystem::exists(path); ++i) {
    std::error_code busy;
    std::filesystem::remove_all(path, busy);
    if (busy) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

Folder::Folder() {
  std::array<int, 2> ends{};
  char name[] = "/dev/shm/nvio-bench-XXXXXX";
  if (pipe2(ends.data(), O_CLOEXEC) != 0 || mkdtemp(name) == nullptr) {
    throw std::runtime_error("cannot make a folder in /dev/shm");
  }
  path_ = name;
  std::filesystem::create_directory(path_ + "/store");
  alive_ = ends[1];
  sweeper_ = fork();
  if (sweeper_ == 0) {
    setsid();  // Ctrl-C is not for it, and who reads our output does not wait for it
    for (const int fd : {ends[1], STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(fd);
    char none = 0;
    while (read(ends[0], &none, 1) < 0 && errno == EINTR) {
    }
    sweep(path_);
    _exit(0);
  }
  close(ends[0]);
}

Folder::~Folder() {
  if (sweeper_ > 0) {
    kill(sweeper_, SIGKILL);
    waitpid(sweeper_, nullptr, 0);
  }
  close(alive_);
  sweep(path_);
}

}  // namespace nvio::bench
