// Which node of its job a process is on, and which node a byte of a file belongs to.
#pragma once

#include <cstdint>
#include <string>

#include "../settings/settings.h"

namespace nvio {

// Where a process is: on which node of how many, and how the job is called on all of them.
struct JobPlace {
  std::uint32_t nodes;
  std::uint32_t node;
  std::uint32_t ranks;  // of the job
  std::string session;
};

// Fills in `nodes` and `node` of the settings: what the user (NVIO_NODES, NVIO_NODE) or the MPI
// (mpi/ask_mpi.h) has said, or the launcher (Slurm; Hydra and Open MPI's mpirun for one node).
// With NVIO_NODES alone the ranks are grouped, as if the machine were several. False, with a
// sentence, when nvio must take no part: ranks whose caches do not see each other would read old
// bytes.
bool place_process(Settings& settings, std::string& why);

// Whether this process speaks to other nodes by way of its own node's manager (`connections`). All
// ranks of a job decide alike; that they do is for speed only.
bool is_relayed(const Settings& settings);

// How the groups (1 MiB) of a file belong to nodes.
struct Shares {
  std::uint64_t part;  // groups in each node's part; 0: striped, by units
  std::uint64_t unit;  // groups that stay together
};

// The least number of groups that hold whole stripes of `stripe` bytes; no more than 64, where such
// a number were larger. 1 for stripes that are not known (0).
std::uint64_t unit_of(std::uint64_t stripe);
// The owner of a group of a file.
std::uint32_t owner_of(std::uint64_t group, const Shares& shares, std::uint32_t nodes);
// Groups in each node's equal part, of whole units, of a file that is `size` bytes long when it is
// first opened; 0 (striped) for a file that is empty then.
std::uint64_t equal_part(std::uint64_t size, std::uint64_t unit, std::uint32_t nodes);
// The node that knows a file's size and state.
std::uint32_t home_of(std::uint64_t inode, std::uint32_t nodes);

}  // namespace nvio
