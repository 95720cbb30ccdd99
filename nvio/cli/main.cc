// nvio: run a program with the cache, rebuild files after a crash, look into a store.
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../recovery/recover.h"
#include "../settings/settings.h"
#include "list.h"
#include "predict.h"
#include "record.h"
#include "run.h"

// Where libnvio.so is preloaded into this program, too: there is nothing for it to do here.
extern "C" __attribute__((visibility("default"))) void nvio_itself() {}

namespace {

using nvio::RecoverOptions;

int recover_stores(const std::vector<std::string>& folders, const RecoverOptions& options) {
  int result = 0;
  for (const nvio::RecoverReport& report : nvio::recover_job(folders, options)) {
    if (!report.problem.empty()) {
      std::fprintf(stderr, "nvio recover: %s\n", report.problem.c_str());
    } else {
      std::fputs(nvio::describe(report, options.dry_run).c_str(), stdout);
    }
    if (!report.good()) result = 1;
  }
  return result;
}

// What the names of the stores of one job's nodes have in common.
std::string job_of(std::string store) {
  while (store.size() > 1 && store.back() == '/') store.pop_back();
  const std::string name = store.substr(store.rfind('/') + 1);
  return name.substr(0, name.rfind(".node"));
}

uid_t owner_of(const std::string& store) {
  struct stat status {};
  return lstat(store.c_str(), &status) == 0 ? status.st_uid : getuid();
}

/// Prints the help or the version that was asked for (0), or what is wrong with the words (2).
int said_of(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  const std::vector<std::string> unknown = app.remaining();
  const std::string what = app.get_subcommands().empty() && !unknown.empty()
                               ? "there is no command '" + unknown.front() + "'"
                               : error.what();
  std::fprintf(stderr, "nvio: %s\nRun nvio --help for the commands, and nvio COMMAND --help.\n",
               what.c_str());
  return 2;
}

int main_throwing(int argc, char** argv) {
  CLI::App app{
      "nvio puts a cache in node-local memory under MPI-IO programs, without changing them.\n\n"
      "  nvio run -- mpirun -n 4 ./app      run with the cache\n"
      "  nvio recover DIR                   rebuild files after a crash (fit for an epilog)\n"
      "  nvio list                          the stores here: whose, running or dead, what to do\n"
      "  nvio inspect DIR                   what lies in a store; --picture: what a job did\n"
      "  nvio record -- mpirun -n 4 ./app   run plainly, and note its I/O calls\n"
      "  nvio calibrate DIR                 measure a file system and the store, in seconds\n"
      "  nvio predict TRACE                 how long it would take with the cache, and what to "
      "do;\n"
      "                                     TRACE: of nvio record, or a Darshan log with DXT\n",
      "nvio"};
  app.require_subcommand(1);
  app.set_version_flag("--version", NVIO_VERSION);

  nvio::RunOptions run;
  CLI::App* run_command = app.add_subcommand(
      "run", "Run the command after -- with the cache under its MPI-IO; exits as it does");
  run_command->add_option("--store", run.store,
                          "Folder on node-local memory or disk (default: /dev/shm)");
  run_command->add_option("--capacity", run.capacity, "Size of the store on each node, e.g. 4GiB");
  run_command
      ->add_option(
          "--set", run.settings,
          "A setting, NAME=VALUE (admit=always), of docs/nvio/settings.md; repeatable. Names: " +
              nvio::names_to_set())
      ->allow_extra_args(false);
  run_command->add_flag("--stats{job}", run.statistics,
                        "At the end, a table of what was cached: of the job; --stats=ranks: of "
                        "each process, too");
  run_command->add_option("--stats-file", run.statistics_file,
                          "Write what --stats tells to this file, as JSON");
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
  recover_command->add_option(
      "--to", options.to,
      "Folder for what cannot go to its file, since that is gone or another "
      "one has its name: new files, with holes where the store has nothing");
  recover_command->add_flag("--force", options.force,
                            "Write to a file of which its file system does not tell whether it is "
                            "still the one that was cached");

  std::string picture;
  CLI::App* inspect_command = app.add_subcommand(
      "inspect", "Describe a store's folder, or draw what a job did; changes nothing");
  inspect_command
      ->add_option("store", folder,
                   "The store's folder, .../nvio-UID-SESSION; with --picture a folder of nvio "
                   "record or a Darshan log with DXT")
      ->required();
  inspect_command->add_option("--picture", picture,
                              "Draw which bytes of its files the job read and wrote, and when, "
                              "into this file (SVG)");
  inspect_command->footer("Example: nvio inspect --picture app.svg /tmp/app.trace");

  nvio::ListOptions listing;
  CLI::App* list_command = app.add_subcommand(
      "list", "The stores on this machine: whose, of which job, how old, and what to do with them");
  list_command->add_option("folders", listing.folders,
                           "Folders that stores lie in (default: NVIO_STORE, else /dev/shm)");
  list_command->add_flag("--json", listing.json, "Print one JSON array");

  nvio::RecordOptions recording;
  CLI::App* record_command = app.add_subcommand(
      "record", "Run the command after -- without the cache, and note its I/O calls in a folder");
  record_command->add_option("--output,-o", recording.folder,
                             "Folder for the traces, one file a rank (default: nvio-trace); on "
                             "another disk than the job's files");
  record_command->footer("Example: nvio record -o /tmp/app -- mpirun -n 4 ./app");

  nvio::CalibrateOptions calibration;
  std::string calibration_file = "nvio-calibration.json";
  CLI::App* calibrate_command = app.add_subcommand(
      "calibrate", "Measure what calls cost on a file system and in the store; takes seconds");
  calibrate_command->add_option("folder", calibration.folder, "A folder where the job's files are")
      ->required()
      ->check(CLI::ExistingDirectory);
  calibrate_command->add_option("--store", calibration.store,
                                "Folder of the store (default: NVIO_STORE, else /dev/shm)");
  calibrate_command
      ->add_option("--ranks", calibration.clients, "Processes at once: the job's ranks here")
      ->default_val(calibration.clients)
      ->check(CLI::Range(1, 1024));
  calibrate_command->add_flag("--drop-caches", calibration.drop_caches,
                              "As root: empty this machine's page cache too, where the file "
                              "system's server runs on it");
  calibrate_command->add_option("--output,-o", calibration_file,
                                "The file to write (default: nvio-calibration.json)");
  calibrate_command->footer("Example: nvio calibrate --ranks 16 /lustre/me/run1");

  nvio::PredictOptions prediction;
  prediction.calibration = calibration_file;
  CLI::App* predict_command = app.add_subcommand(
      "predict", "From a recorded run: how long it would take with the cache, and what to do");
  predict_command
      ->add_option("trace", prediction.trace,
                   "A folder of nvio record, or a Darshan log with DXT (needs pydarshan)")
      ->required();
  predict_command->add_option("--calibration,-c", prediction.calibration,
                              "A file of nvio calibrate (default: nvio-calibration.json)");
  predict_command->add_option("--store", prediction.store,
                              "Folder of the store, which the replay uses as the run would");
  predict_command->add_option("--capacity", prediction.capacity, "Size of the store, e.g. 4GiB");
  predict_command->add_flag("--json", prediction.json, "Print one JSON object");
  predict_command->footer("Example: nvio predict /tmp/app -c nvio-calibration.json");

  // What follows -- is the command's own, options and all.
  const std::string first = argc > 1 ? argv[1] : "";
  char** end = first != "run" && first != "record"
                   ? argv + argc
                   : std::find(argv, argv + argc, std::string("--"));
  if (end != argv + argc) run.command.assign(end + 1, argv + argc);
  try {
    app.parse(static_cast<int>(end - argv), argv);
  } catch (const CLI::ParseError& error) {
    return said_of(app, error);
  }
  if (run_command->parsed()) {
    if (!run.command.empty()) return nvio::run(run);
    std::fprintf(stderr,
                 "nvio run: what is to be run stands after --: nvio run -- mpirun -n 4 ./app\n");
    return 2;
  }
  if (record_command->parsed()) {
    recording.command = run.command;
    if (!recording.command.empty()) return nvio::record(recording);
    std::fprintf(stderr,
                 "nvio record: what is to be run stands after --: nvio record -- mpirun -n 4 "
                 "./app\n");
    return 2;
  }
  if (calibrate_command->parsed()) return nvio::calibrate_command(calibration, calibration_file);
  if (list_command->parsed()) return nvio::list_stores(listing);
  if (predict_command->parsed()) return nvio::predict_command(prediction);
  if (recover_command->parsed()) {
    int result = 0;
    // Another job's file is another file, and another user's job another job.
    std::map<std::pair<uid_t, std::string>, std::vector<std::string>> jobs;
    for (const std::string& store : folders) {
      jobs[{owner_of(store), job_of(store)}].push_back(store);
    }
    for (const auto& [job, stores] : jobs) {
      result |= recover_stores(stores, options);
      // Root acted as the owner; the next job may have another one.
      if (getuid() == 0 && (seteuid(0) != 0 || setegid(getgid()) != 0)) return 1;
    }
    return result;
  }
  if (!picture.empty()) return nvio::picture_command(folder, picture);
  if (const std::string why = nvio::why_no_store(folder); !why.empty()) {
    std::fprintf(stderr, "nvio inspect: %s; what a job did is drawn by --picture FILE.svg\n",
                 why.c_str());
    return 1;
  }
  std::fputs(nvio::inspect(folder).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = main_throwing(argc, argv);
    if ((std::fflush(stdout) == 0 && std::ferror(stdout) == 0) || code != 0) return code;
    std::fputs("nvio: standard output did not take all of it\n", stderr);
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nvio: %s\n", error.what());
    return 1;
  }
}
