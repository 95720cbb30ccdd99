// Starting a node's manager from a process of the job.
#pragma once

#include <cstdint>
#include <string>

#include "../settings/settings.h"

namespace nvio {

enum class Started : std::uint8_t {
  ready,    // it listens
  another,  // another one is there or coming up
  failed,   // a sentence says why
};

// Runs nvio-manager (beside this library) detached: the program must neither find a child that it
// did not make, nor keep the manager's streams open.
Started start_manager(const Settings& settings, std::uint32_t node, std::string& why);

}  // namespace nvio
