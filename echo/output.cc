#include "output.h"

#include <sys/resource.h>

#include <iostream>
#include <nlohmann/json.hpp>

namespace tare::echo {
namespace {

int64_t nanoseconds(const timeval& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1000;
}

}  // namespace

void print_event(const nlohmann::json& event) { std::cout << event.dump() << std::endl; }

nlohmann::json describe_endpoint(const Endpoint& endpoint) {
  const Traits& traits = transport_traits();
  nlohmann::json json = describe_transport(endpoint);
  json["transport"] = traits.name;
  if (traits.has_bind) json["bind"] = endpoint.bind;
  if (traits.has_port) json["port"] = endpoint.port;
  if (!endpoint.peers.empty()) json["peers"] = endpoint.peers;
  if (traits.has_domain) {
    json["domain"] = endpoint.domain;
    json["interface"] = endpoint.interface;
    json["reception"] = endpoint.reception == Reception::kListener ? "listener" : "waitset";
    json["multicast_discovery"] = !endpoint.no_multicast;
  }
  return json;
}

nlohmann::json to_json(const Counters& counters) {
  return {{"sent", counters.sent},
          {"received", counters.received},
          {"lost", counters.lost},
          {"late", counters.late},
          {"duplicated", counters.duplicated},
          {"reordered", counters.reordered},
          {"corrupted", counters.corrupted},
          {"foreign", counters.foreign},
          {"refused", counters.refused}};
}

nlohmann::json own_usage() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return {{"user_ns", nanoseconds(usage.ru_utime)},  {"system_ns", nanoseconds(usage.ru_stime)},
          {"max_rss_kib", usage.ru_maxrss},          {"voluntary_switches", usage.ru_nvcsw},
          {"involuntary_switches", usage.ru_nivcsw}, {"minor_faults", usage.ru_minflt},
          {"major_faults", usage.ru_majflt}};
}

}  // namespace tare::echo
