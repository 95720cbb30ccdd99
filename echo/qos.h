// The quality of service that every DDS here is given, so that a difference between stacks is
// not one of settings. A default left to a stack would be a different one in each.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace tare::echo {

inline constexpr int32_t kHistoryDepth = 16;  // for each requester, which is the topics' key
inline constexpr int64_t kMaxBlockingNs = 100'000'000;
inline constexpr const char* kRequestTopic = "TareEchoRequest";
inline constexpr const char* kReplyTopic = "TareEchoReply";
inline constexpr const char* kTypeName = "tare::idl::Message";

/// As printed with the results.
inline nlohmann::json describe_qos() {
  return {{"reliability", "reliable"},
          {"max_blocking_ns", kMaxBlockingNs},
          {"durability", "volatile"},
          {"history", "keep-last"},
          {"history_depth", kHistoryDepth},
          {"resource_limits", "unlimited"},
          {"latency_budget_ns", 0},
          {"destination_order", "by-reception"},
          {"ownership", "shared"},
          {"autodispose", false},
          {"key", "requester"},
          {"publish_mode", "synchronous"}};
}

}  // namespace tare::echo
