#include "run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "../nodes/rendezvous.h"
#include "../posix/real.h"
#include "../recovery/recover.h"
#include "../settings/launcher.h"
#include "../settings/settings.h"
#include "launch.h"

namespace nvio {
namespace {

// The session is this run's own, and where settings are read from is one, too.
std::vector<std::string> known_names() {
  std::vector<std::string> names = setting_names();
  std::erase(names, "session");
  names.emplace_back("config");
  return names;
}

// Puts NAME=VALUE into the environment; on failure returns a sentence.
std::string set_setting(const std::string& pair) {
  const std::size_t equals = pair.find('=');
  if (equals == std::string::npos || equals == 0) {
    return "--set wants NAME=VALUE, not \"" + pair + "\"";
  }
  const std::string name = pair.substr(0, equals);
  const std::vector<std::string> known = known_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    return "there is no setting \"" + name + "\" for --set; there are " + names_to_set();
  }
  std::string variable = "NVIO_";
  for (const char c : name) {
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return setenv(variable.c_str(), pair.substr(equals + 1).c_str(), 1) == 0 ? "" : failed(variable);
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

// The stores that the job of this session has left on this machine. Of which nodes they are, a job
// may have heard from its MPI alone.
std::vector<std::string> own_stores(const Settings& settings) {
  Settings one_node = settings;
  one_node.nodes = 1;
  const std::filesystem::path whole = store_folder(one_node, 0);
  std::vector<std::string> found;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(whole.parent_path(), unreadable)) {
    const std::string name = entry.path().filename();
    if (name == whole.filename() || name.starts_with(whole.filename().string() + ".node")) {
      found.push_back(entry.path());
    }
  }
  return found;
}

}  // namespace

std::string names_to_set() {
  std::string all;
  for (const std::string& name : known_names()) all += (all.empty() ? "" : ", ") + name;
  return all;
}

int run(const RunOptions& options) {
  const std::string library = find_library();
  if (library.empty()) return 1;
  for (const std::string& pair : options.settings) {
    if (const std::string problem = set_setting(pair); !problem.empty()) {
      std::fprintf(stderr, "nvio run: %s\n", problem.c_str());
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
  const int result = launch(library, options.command);
  int finished = 0;
  for (const std::string& folder : own_stores(settings)) {
    const int one = finish_store(folder);
    if (finished == 0) finished = one;
  }
  remove_rendezvous(settings);
  return result != 0 ? result : finished;
}

}  // namespace nvio
