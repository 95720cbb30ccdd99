#include "run.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../cache/session.h"
#include "../recovery/recover.h"

namespace nvio {
namespace {

volatile std::sig_atomic_t g_child = 0;

void pass_on(int signal) {
  if (g_child > 0) kill(static_cast<pid_t>(g_child), signal);
}

// The preload library: beside this program in a build tree, in ../lib/nvio once installed.
std::string find_library() {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) return {};
  const std::string path = self.data();
  const std::string folder = path.substr(0, path.rfind('/'));
  for (const std::string& candidate : {folder + "/libnvio.so", folder + "/../lib/nvio/libnvio.so",
                                       folder + "/../" NVIO_LIBDIR "/nvio/libnvio.so"}) {
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
  }
  return {};
}

bool set_setting(const std::string& pair) {
  const std::size_t equals = pair.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  std::string name = "NVIO_";
  for (const char c : pair.substr(0, equals)) {
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return setenv(name.c_str(), pair.substr(equals + 1).c_str(), 1) == 0;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 1;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Processes of a job that was killed, and the managers of its nodes, may take a moment to go.
int finish_store(const std::string& folder) {
  RecoverOptions options;
  options.latest = true;
  RecoverReport report;
  for (int i = 0; i < 200; ++i) {
    struct stat status {};
    if (lstat(folder.c_str(), &status) != 0) return 0;
    report = recover(folder, options);
    if (report.problem.find("still running") == std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (!report.problem.empty()) {
    std::fprintf(stderr, "nvio run: %s\n", report.problem.c_str());
    return 1;
  }
  if (!report.files.empty()) {
    std::fprintf(stderr, "nvio run: the job ended with data in its store:\n%s",
                 describe(report, false).c_str());
  }
  return report.good() ? 0 : 1;
}

}  // namespace

int run(const RunOptions& options) {
  const std::string library = find_library();
  if (library.empty()) {
    std::fprintf(stderr,
                 "nvio run: libnvio.so is neither beside this program nor in its lib "
                 "folder: is nvio installed whole?\n");
    return 1;
  }
  for (const std::string& pair : options.settings) {
    if (!set_setting(pair)) {
      std::fprintf(stderr, "nvio run: --set wants NAME=VALUE, not \"%s\"\n", pair.c_str());
      return 2;
    }
  }
  if (!options.store.empty()) setenv("NVIO_STORE", options.store.c_str(), 1);
  if (!options.capacity.empty()) setenv("NVIO_CAPACITY", options.capacity.c_str(), 1);
  if (options.statistics) setenv("NVIO_STATS", "1", 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string session =
      "run-" + std::to_string(getpid()) + "-" +
      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  setenv("NVIO_SESSION", session.c_str(), 1);
  const Settings settings = read_settings_of_process();
  for (const std::string& complaint : settings.complaints) {
    std::fprintf(stderr, "nvio run: %s\n", complaint.c_str());
  }
  if (!settings.complaints.empty()) return 2;
  const char* preloaded = std::getenv("LD_PRELOAD");
  const std::string preload =
      preloaded == nullptr || *preloaded == '\0' ? library : library + ":" + preloaded;

  struct sigaction action {};
  action.sa_handler = pass_on;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::fprintf(stderr, "nvio run: cannot start a process: %s\n", std::strerror(errno));
    return 1;
  }
  if (child == 0) {
    setenv("LD_PRELOAD", preload.c_str(), 1);
    std::vector<char*> words;
    for (const std::string& word : options.command)
      words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    std::fprintf(stderr, "nvio run: cannot run %s: %s\n", words[0], std::strerror(errno));
    _exit(127);
  }
  g_child = child;
  const int result = wait_for(child);
  int finished = 0;
  for (std::uint32_t node = 0; node < std::max(settings.nodes, 1U); ++node) {
    const int one = finish_store(store_folder(settings, node));
    if (finished == 0) finished = one;
  }
  return result != 0 ? result : finished;
}

}  // namespace nvio
