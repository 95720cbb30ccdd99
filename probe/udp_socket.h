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

/// Where udp-sink is asked to drain its data socket: one above the data port. It answers with
/// the number of datagrams drained, a u64 as the asker's and sink's machine have it, big-endian.
inline uint16_t drain_port(uint16_t data_port) { return static_cast<uint16_t>(data_port + 1); }

}  // namespace tare::probe
