// nvio: run a program with the cache, rebuild files after a crash, look into a store.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "../recovery/recover.h"
#include "../settings/settings.h"
#include "run.h"

namespace {

using nvio::RecoverOptions;

int recover_store(const std::string& folder, const RecoverOptions& options) {
  const nvio::RecoverReport report = nvio::recover(folder, options);
  if (!report.problem.empty()) {
    std::fprintf(stderr, "nvio recover: %s\n", report.problem.c_str());
    return 1;
  }
  std::fputs(nvio::describe(report, options.dry_run).c_str(), stdout);
  return report.good() ? 0 : 1;
}

int main_throwing(int argc, char** argv) {
  CLI::App app{
      "nvio puts a cache in node-local memory under MPI-IO programs, without changing them.\n\n"
      "  nvio run -- mpirun -n 4 ./app      run with the cache\n"
      "  nvio recover DIR                   rebuild files after a crash (fit for an epilog)\n"
      "  nvio inspect DIR                   what lies in a store\n"};
  app.require_subcommand(1);
  app.set_version_flag("--version", NVIO_VERSION);

  nvio::RunOptions run;
  CLI::App* run_command = app.add_subcommand(
      "run", "Run the command after -- with the cache under its MPI-IO; exits as it does");
  run_command->add_option("--store", run.store,
                          "Folder on node-local memory or disk (default: /dev/shm)");
  run_command->add_option("--capacity", run.capacity, "Size of the store on each node, e.g. 4GiB");
  run_command
      ->add_option("--set", run.settings,
                   "Any setting, NAME=VALUE as in the guide (admit=always); repeatable")
      ->allow_extra_args(false);
  run_command->add_flag("--stats", run.statistics, "Each process tells at its end what was cached");
  run_command->footer("Example: nvio run --store /scratch/local --stats -- mpirun -n 4 ./app");

  std::string folder;
  RecoverOptions options;
  CLI::App* recover_command = app.add_subcommand(
      "recover", "Rebuild every file of a store to its last synced state; harmless to repeat");
  std::vector<std::string> folders;
  recover_command
      ->add_option("stores", folders,
                   "The store's folder, .../nvio-UID-SESSION; one for each node of the job")
      ->required();
  recover_command->add_flag("--latest", options.latest,
                            "Also write what came after the last sync, if the machine is still up");
  recover_command->add_flag("--dry-run", options.dry_run, "Say what would be done, change nothing");
  recover_command->add_flag("--keep", options.keep, "Leave the store in place afterwards");

  CLI::App* inspect_command =
      app.add_subcommand("inspect", "Describe a store's folder; changes nothing");
  inspect_command->add_option("store", folder, "The store's folder, .../nvio-UID-SESSION")
      ->required();

  // What follows -- is the command's own, options and all.
  char** end =
      std::find_if(argv, argv + argc, [](const char* word) { return word == std::string("--"); });
  if (end != argv + argc) run.command.assign(end + 1, argv + argc);
  CLI11_PARSE(app, static_cast<int>(end - argv), argv);
  if (run_command->parsed()) {
    if (!run.command.empty()) return nvio::run(run);
    std::fprintf(stderr,
                 "nvio run: what is to be run stands after --: nvio run -- mpirun -n 4 ./app\n");
    return 2;
  }
  if (recover_command->parsed()) {
    int result = 0;
    for (const std::string& store : folders) result |= recover_store(store, options);
    return result;
  }
  std::fputs(nvio::inspect(folder).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return main_throwing(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nvio: %s\n", error.what());
    return 1;
  }
}
