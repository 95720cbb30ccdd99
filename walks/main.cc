#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "cli.h"
#include "commands.h"
#include "record.h"
#include "team.h"

namespace {

using namespace walks;

#ifdef OPEN_MPI
constexpr const char* kMpi = "Open MPI";
#else
constexpr const char* kMpi = "MPICH";
#endif

// Whether a launcher that started several processes knows nothing of this program's MPI: each of
// them is alone then, and would do the whole work over the others' files. Says so, once.
bool has_foreign_launcher() {
  struct Launcher {
    const char* size;
    const char* rank;
    const char* shell;    // is set where somebody works in a shell that it started
    bool starts_daemons;  // of the others: its step may be of theirs
  };
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 1) return false;
  // Slurm last: whose daemons it started tells its own number.
  bool alone = false;
  for (const Launcher& launcher :
       {Launcher{"PMI_SIZE", "PMI_RANK", "", false},
        Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "", false},
        Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_PTY_PORT", true}}) {
    const char* const started = std::getenv(launcher.size);
    if (started == nullptr || std::getenv(launcher.shell) != nullptr) continue;
    if (alone && launcher.starts_daemons) return false;
    alone = std::atol(started) <= 1;
    if (alone) continue;
    const char* const rank = std::getenv(launcher.rank);
    if (rank == nullptr || std::atol(rank) == 0) {
      std::fprintf(stderr,
                   "walks: the launcher started %s processes (%s), and each is alone: it is of "
                   "another MPI than this program, which needs %s's, or "
                   "srun with the --mpi for it\n",
                   started, launcher.size, kMpi);
    }
    return true;
  }
  return false;
}

int work(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  Team team;
  team.set_quiet(options.quiet);
  const int threads = team.set_threads(options.threads);
  try {
    Answer answer = run(team, options);
    const Json ranks = gather_tallies(team, team.tally());
    if (team.leads()) {
      if (options.json || options.command == Command::bench) {
        Json record = describe_run(team, options, threads);
        record.update(answer.record);
        record["seconds"] =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        record["rank_totals"] = ranks;
        std::printf("%s\n", record.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
      } else {
        std::fputs(answer.text.c_str(), stdout);
      }
    }
    return answer.wrong ? 1 : 0;
  } catch (const AgreedError& error) {
    if (team.leads()) std::fprintf(stderr, "walks: %s\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int code = 1;
  try {
    const Parsed parsed = parse(argc, argv);
    if (parsed.options) {
      code = has_foreign_launcher() ? 2 : work(*parsed.options);
    } else {
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      if (rank == 0) std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
      code = parsed.exit_code;
    }
  } catch (const std::exception& error) {
    // Not agreed upon: the other ranks may wait for this one, so all must end here.
    std::fprintf(stderr, "walks: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == 0) {
    std::fputs("walks: standard output did not take all of it\n", stderr);
    code = 1;
  }
  return code;
}
