// The sockets of the UDP costs and of their counterpart.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>

namespace tare::probe {

/// The numeric IPv4 address with the port. Throws std::runtime_error if it is none.
sockaddr_in ipv4_address(const std::string& ip, uint16_t port);

/// A UDP socket, bound if `ip` is not empty. Receives fail after `timeout_ms` without data;
/// 0: never.
int open_udp(const std::string& ip, uint16_t port, int timeout_ms = 0);

/// Where udp-sink is asked to drain its data socket: one above the data port. A question is any
/// eight bytes, and this the answer to it.
inline uint16_t drain_port(uint16_t data_port) { return static_cast<uint16_t>(data_port + 1); }
struct Drained {
  uint64_t asked = 0;      // the question's bytes
  uint64_t datagrams = 0;  // drained since the sink began, big-endian
};

}  // namespace tare::probe
