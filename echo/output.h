// The JSON lines on stdout by which a caller follows the program.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "exchange.h"
#include "transport.h"

namespace tare::echo {

/// Prints one event as one line, at once.
void print_event(const nlohmann::json& event);

/// What every event about an endpoint repeats: transport, addresses, explicit settings and QoS.
nlohmann::json describe_endpoint(const Endpoint& endpoint);

nlohmann::json to_json(const Counters& counters);

/// Processor time, peak memory and context switches of this process so far.
nlohmann::json own_usage();

}  // namespace tare::echo
