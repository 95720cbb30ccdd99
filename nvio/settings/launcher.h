// The job as its launcher tells it to every process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "settings.h"

namespace nvio {

// STORE/nvio-UID-SESSION, and for one of several nodes .nodeK behind it: the job's folder there.
std::string store_folder(const Settings& settings, std::uint32_t node);

// The name of the job as its launcher gives it to every process: NVIO_SESSION, Slurm's job and
// step, Open MPI's name space, else the launching process itself (MPICH's proxy).
std::string session_name(const Settings& settings);

// SESSION.WORD, with eight random hexadecimal digits: the name of one of several jobs that may run
// under one session at the same time, and so meet nowhere.
std::string name_beside_others(const std::string& session);
// Of a store's or a rendezvous folder's name what all jobs of its session have in common: without
// that word and the node.
std::string without_job(std::string name);

// Of a rank's parent and that one's ancestors the first that is not itself a rank's: a rank may be
// started through a script, of which each has one of its own. 0: it is in another container.
pid_t launching_process(pid_t parent);

// Whether all ranks of the job run on this node, by what its launcher says; if not, why nvio takes
// no part. Ranks of several nodes would each cache the same file, and not see each other's writes.
bool is_one_node_job(const Settings& settings, std::string& why);

}  // namespace nvio
