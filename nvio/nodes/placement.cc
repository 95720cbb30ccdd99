#include "placement.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "../settings/launcher.h"
#include "../store/segment.h"

namespace nvio {
namespace {

std::optional<std::uint32_t> number(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value < '0' || *value > '9') return std::nullopt;
  return static_cast<std::uint32_t>(std::strtoul(value, nullptr, 10));
}

std::optional<std::uint32_t> first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto found = number(name)) return found;
  }
  return std::nullopt;
}

}  // namespace

bool place_process(Settings& settings, std::string& why) {
  if (settings.ranks == 0) {
    const auto ranks = first_number({"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"});
    settings.ranks = ranks.value_or(0);
  }
  if (settings.nodes != 0) {
    if (!settings.node) {
      const auto rank = first_number({"PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"});
      const std::uint64_t all = std::max<std::uint64_t>(settings.ranks, 1);
      settings.node = static_cast<std::uint32_t>(rank.value_or(0) % all * settings.nodes / all);
    }
    if (settings.nodes > kMaxNodes) {
      why = "the job runs on " + std::to_string(settings.nodes) + " nodes, and nvio on " +
            std::to_string(kMaxNodes) + " at most";
      return false;
    }
    if (*settings.node >= settings.nodes) {
      why = "NVIO_NODE is " + std::to_string(*settings.node) +
            ", of NVIO_NODES=" + std::to_string(settings.nodes) + " that are counted from 0";
      return false;
    }
    return true;
  }
  if (is_one_node_job(settings, why)) {
    settings.nodes = 1;
    settings.node = 0;
    return true;
  }
  const auto nodes = first_number({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  const auto node = number("SLURM_NODEID");
  if (!nodes || !node || *node >= *nodes || *nodes > kMaxNodes) return false;
  if (settings.rendezvous.empty()) {
    why += "; on several nodes NVIO_RENDEZVOUS must name a folder that all of them see";
    return false;
  }
  settings.nodes = *nodes;
  settings.node = *node;
  return true;
}

bool is_relayed(const Settings& settings) {
  if (settings.connections != Connections::automatic) {
    return settings.connections == Connections::relayed;
  }
  return std::uint64_t{settings.ranks} * settings.nodes > kMostDirect;
}

std::uint64_t unit_of(std::uint64_t stripe) {
  constexpr std::uint64_t kMostUnit = 64;
  if (stripe == 0 || stripe > kMostStripe) return 1;
  return std::min(std::lcm(stripe, kGroupSize) / kGroupSize, kMostUnit);
}

std::uint32_t owner_of(std::uint64_t group, const Shares& shares, std::uint32_t nodes) {
  if (shares.part == 0) return static_cast<std::uint32_t>(group / shares.unit % nodes);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(group / shares.part, nodes - 1));
}

std::uint64_t equal_part(std::uint64_t size, std::uint64_t unit, std::uint32_t nodes) {
  const std::uint64_t bytes = unit * kGroupSize;
  const std::uint64_t units = size / bytes + (size % bytes != 0 ? 1 : 0);
  return (units + nodes - 1) / nodes * unit;
}

std::uint32_t home_of(std::uint64_t inode, std::uint32_t nodes) {
  return static_cast<std::uint32_t>((inode * 0x9E3779B97F4A7C15ULL >> 32) % nodes);
}

}  // namespace nvio
