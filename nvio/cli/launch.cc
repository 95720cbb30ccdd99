#include "launch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace nvio {
namespace {

// What ends a process, and what launchers take for a request; SIGPIPE, so that no message to a
// reader that is gone ends us before all stores are written. What is ignored on purpose stays so,
// for the command, too: a script's `nvio run ... &`, nohup.
sigset_t passed_on() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal :
       {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

// What a terminal sends goes to the command itself, too: twice, launchers take for a wish to be
// killed at once. A timer that was set before nvio began is nvio's alone.
bool is_a_terminals(int signal, const siginfo_t& from) {
  return from.si_code == SI_KERNEL && (signal == SIGINT || signal == SIGQUIT || signal == SIGHUP);
}

// With the signals and SIGCHLD blocked.
int wait_for(pid_t child, const sigset_t& signals) {
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    siginfo_t from{};
    const int signal = sigwaitinfo(&signals, &from);
    if (signal > 0 && signal != SIGCHLD && !is_a_terminals(signal, from)) kill(child, signal);
  }
  if (ended < 0) return 1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::string find_library() {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) return {};
  const std::string path = self.data();
  const std::string folder = path.substr(0, path.rfind('/'));
  for (const std::string& candidate : {folder + "/libnvio.so", folder + "/../lib/nvio/libnvio.so",
                                       folder + "/../" NVIO_LIBDIR "/nvio/libnvio.so"}) {
    if (access(candidate.c_str(), R_OK) != 0) continue;
    if (candidate.find_first_of(" :") == std::string::npos) return candidate;
    std::fprintf(stderr,
                 "nvio: LD_PRELOAD takes no path with a space or a colon, as %s has: install nvio "
                 "elsewhere\n",
                 candidate.c_str());
    return {};
  }
  std::fprintf(stderr,
               "nvio: libnvio.so is neither beside this program nor in its lib folder: is nvio "
               "installed whole?\n");
  return {};
}

int launch(const std::string& library, const std::vector<std::string>& command) {
  const char* preloaded = std::getenv("LD_PRELOAD");
  const std::string preload =
      preloaded == nullptr || *preloaded == '\0' ? library : library + ":" + preloaded;

  // Blocked from before the command is there: what comes meanwhile waits until it can be passed on.
  // They stay so: what comes once it has ended must not keep its stores from being written.
  sigset_t signals = passed_on();
  sigaddset(&signals, SIGCHLD);
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would not come
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = fork();
  if (child < 0) {
    std::fprintf(stderr, "nvio: cannot start a process: %s\n", std::strerror(errno));
    return 1;
  }
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    setenv("LD_PRELOAD", preload.c_str(), 1);
    std::vector<char*> words;
    words.reserve(command.size() + 1);
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    std::fprintf(stderr, "nvio: cannot run %s: %s\n", words[0], std::strerror(errno));
    _exit(127);
  }
  return wait_for(child, signals);
}

void allow_signals() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
}

}  // namespace nvio
