// Where a process of a job on several machines is, by the word of its MPI.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "../nodes/placement.h"

namespace nvio {

// Asks by collective calls on MPI_COMM_WORLD: every process of the job must call this, just after
// its MPI_Init. Launchers know less: Hydra's and Open MPI's tell no rank its node, and a batch
// script's SLURM_NODEID may have been handed on from the first node to all. `session` is this
// process's own name for the job, 240 bytes at most; launchers may give each node another one:
// rank 0's becomes everybody's, with a random word behind it where there are several nodes. Nodes
// are counted in the order of their lowest ranks.
//
// No place for a job of one process, of which the MPI may know less than the launcher does (it was
// started without the MPI's support).
struct Asked {
  bool is_together;  // false, at all ranks alike: some did not come, and nvio must stay out of the
                     // job
  std::optional<JobPlace> place;
};
Asked ask_mpi(const std::string& session, std::chrono::seconds patience, bool quiet);

}  // namespace nvio
