#include "run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "../nodes/rendezvous.h"
#include "../recovery/recover.h"
#include "../settings/first_to_say.h"
#include "../settings/launcher.h"
#include "../settings/settings.h"
#include "../system/real.h"
#include "launch.h"
#include "stats.h"

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
  if (const std::string unknown = about_setting(name, known_names()); !unknown.empty()) {
    return "--set " + pair + ": " + unknown + "; there are " + names_to_set();
  }
  return put_into_environment("--set " + pair, name, pair.substr(equals + 1));
}

// What the options say, for the processes that this one starts; on failure returns a sentence.
std::string settings_into_environment(const RunOptions& options) {
  std::string problem;
  for (const std::string& pair : options.settings) {
    if (problem.empty()) problem = set_setting(pair);
  }
  const auto put = [&](const char* option, const char* name, const std::string& value) {
    if (problem.empty() && !value.empty()) {
      problem = put_into_environment(std::string(option) + " " + value, name, value);
    }
  };
  put("--store", "store", options.store);
  put("--capacity", "capacity", options.capacity);
  const bool to_file = options.statistics.empty() && !options.statistics_file.empty();
  put("--stats", "stats", to_file ? "job" : options.statistics);
  return problem;
}

// Under Slurm it begins as all sessions of the job do: this process may be killed too, and then the
// Epilog has to find the store.
std::string name_of_run() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const char* job = std::getenv("SLURM_JOB_ID");
  return (job != nullptr && *job != '\0' ? std::string("slurm-") + job + "." : "") + "run-" +
         std::to_string(getpid()) + "-" +
         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

// Processes of a job that was killed, and the managers of its nodes, may take a moment to go; who
// goes last takes the store away, file by file.
int finish_store(const std::string& folder) {
  RecoverOptions options;
  options.latest = true;
  RecoverReport report;
  for (int i = 0; i < 200; ++i) {
    struct stat status {};
    if (lstat(folder.c_str(), &status) != 0) return 0;
    report = recover(folder, options);
    const bool still_runs = report.problem.find("still running") != std::string::npos;
    if (report.problem.empty() || (!still_runs && why_no_store(folder).empty())) break;
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

// The stores that the jobs of this session have left on this machine. Of which nodes they are, a
// job may have heard from its MPI alone. Another user may have made a folder of such a name.
std::vector<std::string> own_stores(const Settings& settings) {
  Settings one_node = settings;
  one_node.nodes = 1;
  const std::filesystem::path whole = store_folder(one_node, 0);
  std::vector<std::string> found;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(whole.parent_path(), unreadable)) {
    const std::string name = entry.path().filename();
    struct stat status {};
    if (without_job(name) == whole.filename() && lstat(entry.path().c_str(), &status) == 0 &&
        status.st_uid == geteuid()) {
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
  if (const std::string problem = settings_into_environment(options); !problem.empty()) {
    std::fprintf(stderr, "nvio run: %s; nothing was run\n", problem.c_str());
    return 2;
  }
  setenv("NVIO_SESSION", name_of_run().c_str(), 1);
  Settings settings = read_settings_of_process();
  if (const char* traces = std::getenv("NVIO_RECORD"); traces != nullptr && *traces != '\0') {
    settings.complaints.push_back(std::string("NVIO_RECORD=") + traces +
                                  " has programs recorded in place of cached: unset it");
  }
  const std::string& told = options.statistics_file;
  if (!told.empty() && settings.statistics == Statistics::off) {
    settings.complaints.push_back("--stats-file " + told +
                                  ": there is nothing to write with --stats=off");
  }
  for (const std::string& complaint : settings.complaints) {
    std::fprintf(stderr, "nvio run: %s; nothing was run\n", complaint.c_str());
  }
  if (!settings.complaints.empty()) return 2;
  if (!told.empty() && !std::ofstream(told, std::ios::app)) {
    std::fprintf(stderr, "nvio run: %s; nothing was run\n", failed("cannot write " + told).c_str());
    return 2;
  }
  // Of all processes, also where a site's TaskProlog has another folder for jobs that name none.
  setenv("NVIO_STORE", settings.store.c_str(), 1);
  for (const std::string& unknown : settings.unknown) {
    // Held to the end of the run: no rank says it again.
    if (is_first_to_say(unknown.c_str())) std::fprintf(stderr, "nvio run: %s\n", unknown.c_str());
  }
  std::optional<Stats> stats;
  if (settings.statistics != Statistics::off) stats.emplace(settings);
  const int result = launch(library, options.command);
  int finished = 0;
  for (const std::string& folder : own_stores(settings)) {
    const int one = finish_store(folder);
    if (finished == 0) finished = one;
  }
  remove_rendezvous(settings);
  if (stats && !stats->tell(options.command, told) && finished == 0) finished = 1;
  return result != 0 ? result : finished;
}

}  // namespace nvio
