// What concerns a whole job is said by one of its processes on each node: the first that finds out.
// For the loader, too: the C library only.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace nvio {

// Whether this process may be on another node than the job's first, as far as its launcher tells:
// what is the same on all nodes is said on that one.
inline bool is_on_a_later_node() {
  static constexpr const char* kRanks[][2] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"PMI_RANK", "MPI_LOCALRANKID"},
      {"SLURM_PROCID", "SLURM_LOCALID"}};
  for (const auto& [of_job, of_node] : kRanks) {
    const char* job = getenv(of_job);
    const char* node = getenv(of_node);
    if (job != nullptr && node != nullptr) return std::strcmp(job, node) != 0;
  }
  return false;
}

// True in the first process of the job on this node that asks about `what`, as long as that lives.
// It binds a name of the kernel's, which nobody else can and nothing remains of.
inline bool is_first_to_say(const char* what) {
  char parent[16];
  std::snprintf(parent, sizeof parent, "%d", static_cast<int>(getppid()));
  const char* job = parent;
  for (const char* name : {"NVIO_SESSION", "SLURM_JOB_ID", "PMIX_NAMESPACE"}) {
    const char* value = getenv(name);
    if (value == nullptr || *value == '\0') continue;
    job = value;
    break;
  }
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char* text : {job, what}) {
    for (const char* at = text; *at != '\0'; ++at) {
      hash = (hash ^ static_cast<unsigned char>(*at)) * 0x100000001B3ULL;
    }
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length =
      std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "nvio-said-%u-%016llx",
                    static_cast<unsigned>(geteuid()), static_cast<unsigned long long>(hash));
  const int holder = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (holder < 0) return true;
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1) + static_cast<socklen_t>(length);
  if (bind(holder, reinterpret_cast<const sockaddr*>(&address), size) == 0) return true;
  close(holder);
  return false;
}

}  // namespace nvio
