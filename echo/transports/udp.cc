// UDP: the floor. One datagram a message; the client's socket is connected.
#include <nlohmann/json.hpp>

#include "datagram.h"

namespace tare::echo {

const Traits& transport_traits() {
  static constexpr Traits traits = {.name = "udp",
                                    .summary = "UDP datagrams, blocking sockets",
                                    .has_port = true,
                                    .has_bind = true,
                                    .max_payload = kMaxDatagram - kHeaderBytes};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& /*endpoint*/) {
  return {{"socket", "blocking"}, {"client_socket", "connected"}, {"header_bytes", kHeaderBytes}};
}

std::unique_ptr<Server> make_server(const Endpoint& endpoint) {
  return std::make_unique<DatagramServer>(endpoint);
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<DatagramClient>(endpoint);
}

}  // namespace tare::echo
