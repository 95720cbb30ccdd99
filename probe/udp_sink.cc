// The receiving side of udp-send: a bound socket that nobody waits on. It is emptied only when
// the sender asks, between its batches, so that a send never wakes anyone.
#include <endian.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "costs.h"
#include "line.h"
#include "measurement.h"
#include "service.h"
#include "udp_socket.h"

namespace tare::probe {
namespace {

struct Options {
  std::string bind = "0.0.0.0";
  uint16_t port = 0;
};

uint64_t drain(int fd) {
  uint64_t count = 0;
  std::array<std::byte, 65536> buffer;
  while (recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT) >= 0) ++count;
  return count;
}

void run(const Options& options) {
  Service service;
  const int data = open_udp(options.bind, options.port);
  const int control = open_udp(options.bind, drain_port(options.port));
  const int room = 8 << 20;  // a batch must fit; root may go beyond net.core.rmem_max
  if (setsockopt(data, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0) {
    setsockopt(data, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  }
  print_line({{"event", "ready"}, {"bind", options.bind}, {"port", uint64_t{options.port}}});
  uint64_t total = 0;
  while (service.wait_for(control)) {
    sockaddr_in asker = {};
    socklen_t length = sizeof asker;
    Drained answer;
    if (recvfrom(control, &answer.asked, sizeof answer.asked, MSG_DONTWAIT,
                 reinterpret_cast<sockaddr*>(&asker), &length) < 0) {
      continue;
    }
    total += drain(data);
    answer.datagrams = htobe64(total);
    sendto(control, &answer, sizeof answer, 0, reinterpret_cast<sockaddr*>(&asker), length);
  }
  print_line({{"event", "stopped"}, {"datagrams", total}});
  close(data);
  close(control);
}

}  // namespace

void add_udp_sink(Command costs) {
  static Options options;
  const Command command =
      costs.add("udp-sink",
                "The counterpart of udp-send: a socket that nobody waits on, until SIGTERM.\n"
                "Uses the port and the one above it.");
  command.add("--bind", options.bind, "local address", "IP (default any)");
  command.add("--port", options.port, "port of the data", "N").required().within(1, 65534);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
