// The way to a node's manager: its address, the connection, and the proof of the secret at both
// ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "../settings/settings.h"
#include "../transport/transport.h"

namespace nvio {

// For a manager to come up, on a busy machine.
constexpr std::chrono::seconds kManagerPatience{60};

// What became of an attempt.
struct Reached {
  std::unique_ptr<Channel> channel;  // ready for what comes after the proof; or null, and
  std::string why;                   // a sentence
  bool is_refused = false;           // there is no point in trying again
  bool is_there = false;             // it answers, and has its reason
};

// Tries once to connect as `caller` (kProcess, or the node whose manager calls), and where there is
// none and this process may, starts the manager for the next attempt. Blocks, no longer than the
// silence at each step.
Reached reach_manager(const Settings& settings, std::uint32_t node, std::uint32_t caller);

}  // namespace nvio
