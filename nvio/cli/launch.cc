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

volatile std::sig_atomic_t g_child = 0;

// What a terminal sends goes to the command itself, too: twice, launchers take for a wish to be
// killed at once.
void pass_on(int signal, siginfo_t* from, void*) {
  if (g_child > 0 && from->si_code != SI_KERNEL) kill(static_cast<pid_t>(g_child), signal);
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 1;
  }
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
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
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

  struct sigaction action {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGTERM, SIGINT}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // What is ignored on purpose stays so, for the command, too: a script's `nvio run ... &`.
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  const pid_t child = fork();
  if (child < 0) {
    std::fprintf(stderr, "nvio: cannot start a process: %s\n", std::strerror(errno));
    return 1;
  }
  if (child == 0) {
    setenv("LD_PRELOAD", preload.c_str(), 1);
    std::vector<char*> words;
    words.reserve(command.size() + 1);
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    std::fprintf(stderr, "nvio: cannot run %s: %s\n", words[0], std::strerror(errno));
    _exit(127);
  }
  g_child = child;
  return wait_for(child);
}

}  // namespace nvio
