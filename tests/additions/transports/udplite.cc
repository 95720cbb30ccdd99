// UDP-Lite (RFC 3828): UDP with a checksum over part of a datagram, here over all of it.
#include <netinet/in.h>

#include <nlohmann/json.hpp>

#include "datagram.h"

namespace tare::echo {

const Traits& transport_traits() {
  static constexpr Traits traits = {.name = "udplite",
                                    .summary = "UDP-Lite datagrams, blocking sockets",
                                    .has_port = true,
                                    .has_bind = true,
                                    .max_payload = kMaxDatagram - kHeaderBytes};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& /*endpoint*/) {
  return {{"socket", "blocking"}, {"client_socket", "connected"}, {"header_bytes", kHeaderBytes}};
}

std::unique_ptr<Server> make_server(const Endpoint& endpoint) {
  return std::make_unique<DatagramServer>(endpoint, IPPROTO_UDPLITE);
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<DatagramClient>(endpoint, IPPROTO_UDPLITE);
}

}  // namespace tare::echo
