#include "ask_mpi.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "mpi_functions.h"

namespace nvio {
namespace {

using Clock = std::chrono::steady_clock;

// What the first rank of a node learns, and tells the others.
struct Told {
  std::uint32_t nodes;
  std::uint32_t node;
  char session[256];
};

// Waits until every process of the job is here. One that nvio was not preloaded into never comes,
// and the user would look at a job that stands still for no reason to be seen. By messages (a
// dissemination barrier), for a collective call would meet that process's next one.
void meet(const MpiFunctions& mpi, int ranks, bool quiet) {
  constexpr std::chrono::seconds kToSay{10};
  constexpr int kTag = 32000;  // one that programs hardly use; every MPI has it
  int rank = 0;
  mpi.comm_rank(mpi.comm_world, &rank);
  bool said = quiet || (rank & (rank - 1)) != 0;  // of thousands, a dozen say it
  const auto began = Clock::now();
  for (int step = 1; step < ranks; step *= 2) {
    char here = 0;
    char there = 0;
    MPI_Request request;
    mpi.irecv(&there, 1, mpi.byte, (rank + ranks - step) % ranks, kTag, mpi.comm_world, &request);
    mpi.send(&here, 1, mpi.byte, (rank + step) % ranks, kTag, mpi.comm_world);
    int done = 0;
    while (mpi.test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) {
      if (!said && Clock::now() - began > kToSay) {
        std::fprintf(stderr,
                     "nvio: still waiting for ranks of this job to say on which node they are: are "
                     "LD_PRELOAD and NVIO_RENDEZVOUS set for all of them (Open MPI: mpirun -x "
                     "LD_PRELOAD -x NVIO_RENDEZVOUS)?\n");
        said = true;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

}  // namespace

std::optional<JobPlace> ask_mpi(const std::string& session, bool quiet) {
  const MpiFunctions& mpi = mpi_functions();
  int ranks = 1;
  mpi.comm_size(mpi.comm_world, &ranks);
  if (ranks == 1) return std::nullopt;
  meet(mpi, ranks, quiet);
  MPI_Comm here;
  mpi.comm_split_type(mpi.comm_world, MPI_COMM_TYPE_SHARED, 0, mpi.info_null, &here);
  int rank_here = 0;
  mpi.comm_rank(here, &rank_here);
  const bool is_first = rank_here == 0;
  MPI_Comm firsts;
  mpi.comm_split(mpi.comm_world, is_first ? 0 : MPI_UNDEFINED, 0, &firsts);
  Told told{};
  constexpr int kSize = sizeof told;
  if (is_first) {
    int nodes = 1;
    int node = 0;
    mpi.comm_size(firsts, &nodes);
    mpi.comm_rank(firsts, &node);
    std::strncpy(told.session, session.c_str(), sizeof told.session - 1);
    mpi.bcast(&told, kSize, mpi.byte, 0, firsts);
    told.nodes = static_cast<std::uint32_t>(nodes);
    told.node = static_cast<std::uint32_t>(node);
    mpi.comm_free(&firsts);
  }
  mpi.bcast(&told, kSize, mpi.byte, 0, here);
  mpi.comm_free(&here);
  return JobPlace{told.nodes, told.node, told.session};
}

}  // namespace nvio
