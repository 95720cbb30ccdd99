#include "udp_socket.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <stdexcept>

#include "measurement.h"

namespace tare::probe {

sockaddr_in ipv4_address(const std::string& ip, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, ip.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error("\"" + ip + "\" is no IPv4 address; give one such as 10.0.0.2");
  }
  return address;
}

int open_udp(const std::string& ip, uint16_t port, int timeout_ms) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_errno("cannot open a UDP socket");
  if (timeout_ms > 0) {
    const timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000L};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }
  if (ip.empty()) return fd;
  const sockaddr_in address = ipv4_address(ip, port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    throw_errno("cannot bind to " + ip + " port " + std::to_string(port));
  }
  return fd;
}

}  // namespace tare::probe
