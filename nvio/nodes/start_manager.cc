#include "start_manager.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../settings/launcher.h"
#include "../system/real.h"
#include "../transport/transport.h"

namespace nvio {
namespace {

std::string manager_program() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&manager_program), &here) == 0) return {};
  // Absolute: a manager, which starts others, works in the root folder.
  char* const whole = realpath(here.dli_fname, nullptr);
  const std::string path = whole != nullptr ? whole : here.dli_fname;
  std::free(whole);
  const std::size_t slash = path.rfind('/');
  return (slash == std::string::npos ? "." : path.substr(0, slash)) + "/nvio-manager";
}

// The program's environment without our preload (the manager is no MPI program), and with what this
// process was told otherwise than by its environment.
std::vector<std::string> own_environment(const Settings& settings) {
  std::vector<std::string> kept;
  if (!settings.rendezvous.empty()) kept.push_back("NVIO_RENDEZVOUS=" + settings.rendezvous);
  if (!settings.address.empty()) kept.push_back("NVIO_ADDRESS=" + settings.address);
  if (settings.capacity != 0) kept.push_back("NVIO_CAPACITY=" + std::to_string(settings.capacity));
  kept.push_back("NVIO_SILENCE=" + std::to_string(settings.silence));
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string pair = *at;
    const std::string name = pair.substr(0, pair.find('=') + 1);
    const bool told = std::any_of(kept.begin(), kept.end(), [&](const std::string& known) {
      return known.starts_with(name);
    });
    if (name != "LD_PRELOAD=" && !told) kept.push_back(pair);
  }
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

std::string read_line(int fd, std::chrono::seconds silence) {
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + silence;
  std::string text;
  std::array<char, 512> part{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up - steady_clock::now());
    pollfd waiting{fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, std::max(static_cast<int>(left.count()), 0));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return "it does not get ready";
    const ssize_t got = read(fd, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

Started start_manager(const Settings& settings, std::uint32_t node, std::string& why) {
  const std::string program = manager_program();
  std::vector<std::string> words{program, settings.store, session_name(settings),
                                 std::to_string(settings.nodes), std::to_string(node)};
  std::vector<std::string> variables = own_environment(settings);
  const std::vector<char*> arguments = pointers(words);
  const std::vector<char*> environment = pointers(variables);
  std::array<int, 2> told{};
  if (pipe2(told.data(), O_CLOEXEC) != 0) {
    why = failed("cannot make a pipe");
    return Started::failed;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, told[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int error =
      posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  real().close(told[1]);
  std::string line;
  if (error == 0) {
    line = read_line(told[0], std::chrono::seconds(settings.silence));
    // The manager itself is a child of this child, which ends at once.
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  real().close(told[0]);
  if (error != 0) {
    why = "cannot start " + program + ": " + std::strerror(error);
    return Started::failed;
  }
  if (line == "ready") return Started::ready;
  if (line == "another") return Started::another;
  why = line.empty() ? program + " ended before it was ready" : line;
  return Started::failed;
}

}  // namespace nvio
