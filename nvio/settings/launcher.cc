#include "launcher.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>

#include "../posix/real.h"

namespace nvio {
namespace {

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::string start_time_of(pid_t process) {
  std::string text;
  if (!read_text("/proc/" + std::to_string(process) + "/stat", text)) return "0";
  std::size_t at = text.rfind(')');
  if (at == std::string::npos) return "0";
  constexpr int kStartTime = 20;  // the 22nd field; the name was the second
  for (int i = 0; i < kStartTime && at != std::string::npos; ++i) at = text.find(' ', at + 1);
  if (at == std::string::npos) return "0";
  return text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

}  // namespace

std::string session_name(const Settings& settings) {
  if (!settings.session.empty()) return settings.session;
  std::string name;
  if (const char* job = environment("SLURM_JOB_ID"); job != nullptr) {
    const char* step = environment("SLURM_STEP_ID");
    name = std::string("slurm-") + job + "." + (step != nullptr ? step : "0");
  } else if (const char* space = environment("PMIX_NAMESPACE"); space != nullptr) {
    name = std::string("pmix-") + space;
  } else if (environment("PMI_RANK") != nullptr || environment("OMPI_COMM_WORLD_RANK") != nullptr) {
    name = "launcher-" + std::to_string(getppid()) + "-" + start_time_of(getppid());
  } else {
    name = "alone-" + std::to_string(getpid()) + "-" + start_time_of(getpid());
  }
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return name;
}

std::string store_prefix() { return "nvio-" + std::to_string(geteuid()) + "-"; }

std::string store_folder(const Settings& settings, std::uint32_t node) {
  const std::string folder = settings.store + "/" + store_prefix() + session_name(settings);
  return settings.nodes > 1 ? folder + ".node" + std::to_string(node) : folder;
}

bool is_one_node_job(const Settings& settings, std::string& why) {
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
