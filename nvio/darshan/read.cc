#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "../predict/replay.h"
#include "job.h"

namespace nvio {
namespace {

constexpr int kNoPydarshan = 3;  // what read_log.py ends with
constexpr const char* kInstall =
    "Darshan logs are read by pydarshan: pip install darshan, and have that python3 first on PATH";

// Beside this program in a build tree, in ../lib/nvio once installed.
std::string find_script() {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) return {};
  const std::string path = self.data();
  const std::string folder = path.substr(0, path.rfind('/'));
  for (const std::string& place :
       {folder, folder + "/../lib/nvio", folder + "/../" NVIO_LIBDIR "/nvio"}) {
    std::string script = place + "/read_log.py";
    if (access(script.c_str(), R_OK) == 0) return script;
  }
  return {};
}

std::string content_of(int fd) {
  std::string all;
  std::array<char, 1 << 16> piece{};
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n = 0; (n = read(fd, piece.data(), piece.size())) > 0;) {
    all.append(piece.data(), static_cast<std::size_t>(n));
  }
  return all;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// What the script printed and what the library complained of; its exit status, or 128 + a signal.
int run_script(const std::string& script, const std::string& log, std::string& printed,
               std::string& complaints) {
  const int out = memfd_create("nvio-darshan", MFD_CLOEXEC);
  const int err = memfd_create("nvio-darshan-errors", MFD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  std::array<std::string, 3> words{"python3", script, log};
  std::array<char*, 4> arguments{words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = -1;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  while (failed == 0 && waitpid(child, &status, WNOHANG) == 0) {
    constexpr int kMoment = 10;  // ms
    if (is_replay_stopped()) kill(child, SIGKILL);
    poll(nullptr, 0, kMoment);
  }
  printed = content_of(out);
  complaints = content_of(err);
  close(out);
  close(err);
  if (failed != 0) return kNoPydarshan;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string why_not(int status, const std::string& complaints) {
  if (status == kNoPydarshan) return kInstall;
  if (is_replay_stopped()) return "stopped; nothing was left behind";
  const int signal = status - 128;
  for (const int fault : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) {
    if (signal == fault) return "pydarshan did not survive reading it: it is damaged";
  }
  if (signal > 0) return "pydarshan was ended by signal " + std::to_string(signal);
  // After an error in a log the library only stops early. Its complaints begin a line so; what else
  // is said may come of an import, or be a path.
  if (status != 0 || ("\n" + complaints).find("\nError: ") != std::string::npos) {
    return "pydarshan cannot read it (" + last_line(complaints) +
           "): it is damaged, cut short, or of a newer Darshan";
  }
  return {};
}

}  // namespace

JobTrace read_darshan(const std::string& path) {
  JobTrace none;
  const std::string script = find_script();
  if (access(path.c_str(), R_OK) != 0) {
    none.problem = "cannot read " + path + ": " + std::strerror(errno);
  } else if (script.empty()) {
    none.problem = "read_log.py is not beside nvio's libraries: is nvio installed whole?";
  }
  if (!none.problem.empty()) return none;
  // A log of a million calls takes some ten seconds.
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "nvio: reading %s ...\n", path.c_str());
  std::string printed;
  std::string complaints;
  const int status = run_script(script, path, printed, complaints);
  if (const std::string why = why_not(status, complaints); !why.empty()) {
    none.problem = status == kNoPydarshan ? why : path + ": " + why;
    return none;
  }
  JobTrace job = job_of(parse_darshan(printed));
  if (!job.problem.empty()) job.problem = path + ": " + job.problem;
  return job;
}

}  // namespace nvio
