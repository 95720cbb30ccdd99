#include "launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>

#include "../system/random_ending.h"
#include "../system/real.h"
#include "own_stores.h"

namespace nvio {
namespace {

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

constexpr const char* kRankVariables[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK"};

// What the kernel tells of a process: its `field` as counted in proc(5), from 3 on (the second is a
// name in brackets).
std::string stat_of(pid_t process, int field) {
  std::string text;
  if (!read_text("/proc/" + std::to_string(process) + "/stat", text)) return "0";
  std::size_t at = text.rfind(')');
  for (int i = 2; i < field && at != std::string::npos; ++i) at = text.find(' ', at + 1);
  if (at == std::string::npos) return "0";
  return text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

std::string start_time_of(pid_t process) { return stat_of(process, 22); }

// Whether it was started as a rank, or by one.
bool is_of_a_rank(pid_t process) {
  std::string variables;
  if (!read_text("/proc/" + std::to_string(process) + "/environ", variables)) return false;
  variables.insert(0, 1, '\0');
  return std::any_of(std::begin(kRankVariables), std::end(kRankVariables), [&](const char* name) {
    return variables.find(std::string(1, '\0') + name + "=") != std::string::npos;
  });
}

}  // namespace

pid_t launching_process(pid_t parent) {
  while (parent > 0 && is_of_a_rank(parent)) parent = std::atoi(stat_of(parent, 4).c_str());
  return parent;
}

std::string session_name(const Settings& settings) {
  if (!settings.session.empty()) return settings.session;
  std::string name;
  if (const char* job = environment("SLURM_JOB_ID"); job != nullptr) {
    const char* step = environment("SLURM_STEP_ID");
    name = std::string("slurm-") + job + "." + (step != nullptr ? step : "0");
  } else if (const char* space = environment("PMIX_NAMESPACE"); space != nullptr) {
    name = std::string("pmix-") + space;
  } else if (std::any_of(std::begin(kRankVariables), std::end(kRankVariables), environment)) {
    const pid_t launcher = launching_process(getppid());
    name = "launcher-" + std::to_string(launcher) + "-" + start_time_of(launcher);
  } else {
    name = "alone-" + std::to_string(getpid()) + "-" + start_time_of(getpid());
  }
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return name;
}

std::string name_beside_others(const std::string& session) { return session + random_ending(); }

std::string without_job(std::string name) {
  if (const std::size_t node = name.rfind(".node"); node != name.npos) name.resize(node);
  const std::size_t dot = name.rfind('.');
  const bool has_word = dot != name.npos && name.size() - dot == 9 &&
                        name.find_first_not_of("0123456789abcdef", dot + 1) == name.npos;
  if (has_word) name.resize(dot);
  return name;
}

std::string store_folder(const Settings& settings, std::uint32_t node) {
  const std::string folder = settings.store + "/" + StorePrefix().c_str() + session_name(settings);
  return settings.nodes > 1 ? folder + ".node" + std::to_string(node) : folder;
}

bool is_one_node_job(const Settings& settings, std::string& why) {
  // No process above, or one of a rank: that of the container. All of them would have this name.
  if (session_name(settings).starts_with("launcher-0-")) {
    why =
        "this rank's launcher is in another container and names no job, so that ranks cannot find "
        "each other; start the launcher in the ranks' container";
    return false;
  }
  struct Launcher {
    const char* all;    // ranks (or nodes) of the job
    const char* local;  // of them, on this node; null: `all` counts nodes
  };
  constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                     {"PMI_SIZE", "MPI_LOCALNRANKS"},
                                     {"SLURM_STEP_NUM_NODES", nullptr}};
  for (const Launcher& launcher : kLaunchers) {
    const char* all = environment(launcher.all);
    const char* local = launcher.local != nullptr ? environment(launcher.local) : "1";
    if (all == nullptr || local == nullptr) continue;
    if (std::atol(all) == std::atol(local)) return true;
    why = std::string("the job runs on several nodes, and ") +
          (settings.rendezvous.empty() ? "NVIO_RENDEZVOUS is" : "NVIO_NODES and NVIO_NODE are") +
          " not set";
    return false;
  }
  if (environment("PMI_RANK") == nullptr && environment("PMIX_RANK") == nullptr) return true;
  if (settings.one_node) return true;
  why =
      "this launcher does not tell whether the job runs on one node; if it does, set "
      "NVIO_ONE_NODE=1";
  return false;
}

}  // namespace nvio
