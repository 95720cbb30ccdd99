// Where a process of a job on several machines is, by the word of its MPI.
#pragma once

#include <optional>
#include <string>

#include "../nodes/placement.h"

namespace nvio {

// Asks by collective calls on MPI_COMM_WORLD: every process of the job must call this, just after
// its MPI_Init. Launchers know less: Hydra's and Open MPI's tell no rank its node, and a batch
// script's SLURM_NODEID may have been handed on from the first node to all. `session` is this
// process's own name for the job, 255 bytes at most; launchers may give each node another one:
// rank 0's becomes everybody's. Nodes are counted in the order of their lowest ranks.
//
// Nothing for a job of one process, of which the MPI may know less than the launcher does (it was
// started without the MPI's support).
std::optional<JobPlace> ask_mpi(const std::string& session, bool quiet);

}  // namespace nvio
