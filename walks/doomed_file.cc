#include "doomed_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <system_error>

namespace walks {
namespace {

// Paths for the signal handler, which may neither allocate nor lock.
std::array<std::atomic<const char*>, 8> doomed{};

extern "C" void remove_doomed(int signal) {
  for (auto& path : doomed) {
    if (const char* const name = path.load(); name != nullptr) unlink(name);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

DoomedFile::DoomedFile(std::string path, bool armed) : path_(std::move(path)) {
  if (!armed) return;
  static_assert(std::atomic<const char*>::is_always_lock_free);
  for (int i = 0; i < static_cast<int>(doomed.size()); ++i) {
    const char* expected = nullptr;
    if (doomed[static_cast<std::size_t>(i)].compare_exchange_strong(expected, path_.c_str())) {
      slot_ = i;
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        // What is ignored on purpose stays so: nohup walks ...
        if (std::signal(signal, remove_doomed) == SIG_IGN) std::signal(signal, SIG_IGN);
      }
      return;
    }
  }
  throw std::logic_error("too many scratch files");
}

DoomedFile::~DoomedFile() {
  if (slot_ < 0) return;
  unlink(path_.c_str());
  doomed[static_cast<std::size_t>(slot_)] = nullptr;
}

void DoomedFile::keep_as(const std::string& name) {
  if (slot_ < 0) return;
  if (std::rename(path_.c_str(), name.c_str()) != 0) {
    const std::string why = std::system_category().message(errno);
    throw std::runtime_error("cannot give " + path_ + " its name " + name + ": " + why);
  }
  doomed[static_cast<std::size_t>(slot_)] = nullptr;
  slot_ = -1;
}

}  // namespace walks
