// The two commands and their options.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <variant>

#include "exchange.h"
#include "transport.h"

namespace tare::echo {

struct ServeOptions {
  Endpoint endpoint;
};

struct AskOptions {
  Endpoint endpoint;
  Mode mode = Mode::kClosed;
  Pace pace = Pace::kSleep;
  double rate = 0;
  uint32_t clients = 1;
  uint64_t requests = 0;  // after parsing: never 0, the room to reserve for samples
  int64_t duration_ns = 0;
  uint64_t warmup = 0;
  int64_t timeout_ns = 1'000'000'000;
  int64_t ready_timeout_ns = 10'000'000'000;
  uint32_t outstanding = 0;
  uint32_t give_up_after = 10;
  std::string out;
  uint64_t seed = 1;
  bool start_on_stdin = false;
};

/// Most requesters in one process: the requester number has this much room for them.
inline constexpr uint32_t kMaxClients = 1024;

/// What --duration-ns alone reserves room for, a client.
inline constexpr uint64_t kDefaultRequests = 1'000'000;

/// The command line cannot be carried out as it stands; what() says why in a sentence.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The user asked for the help text, which is what().
class HelpRequested : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Options = std::variant<ServeOptions, AskOptions>;

/// Throws UsageError or HelpRequested. Options that mean nothing to the transport are refused.
Options parse_command_line(const Traits& traits, int argc, const char* const* argv);

}  // namespace tare::echo
