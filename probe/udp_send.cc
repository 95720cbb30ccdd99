// Sending a datagram that is delivered into a socket on which nobody waits: the way down, over
// the link and up to the far socket, as far as it runs on the sender's processor.
#include <endian.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "costs.h"
#include "measurement.h"
#include "udp_socket.h"

namespace tare::probe {
namespace {

struct Options {
  Extent extent{.batches = 50, .operations = 100};
  std::string peer;
  std::string bind;
  uint16_t port = 0;
  std::size_t bytes = 88;
};

int connect_to(const Options& options, uint16_t port, int timeout_ms) {
  const int fd = open_udp(options.bind, 0, timeout_ms);
  const sockaddr_in address = ipv4_address(options.peer, port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    throw_errno("cannot reach " + options.peer);
  }
  return fd;
}

// Has the sink empty its socket; how many datagrams have arrived there since it began. An answer
// that comes after its question was given up is not the next one's, before which the sink still
// empties it.
uint64_t ask_to_drain(int control, const Options& options) {
  static uint64_t number = 0;
  ++number;
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (send(control, &number, sizeof number, 0) < 0) continue;
    Drained answer;
    while (recv(control, &answer, sizeof answer, 0) == static_cast<ssize_t>(sizeof answer)) {
      if (answer.asked == number) return be64toh(answer.datagrams);
    }
  }
  throw std::runtime_error("no udp-sink answers at " + options.peer + " port " +
                           std::to_string(drain_port(options.port)) +
                           "; start `probe udp-sink --port " + std::to_string(options.port) +
                           "` there");
}

void run(const Options& options) {
  constexpr int kPatienceMs = 1000;
  const int data = connect_to(options, options.port, 0);
  const int control = connect_to(options, drain_port(options.port), kPatienceMs);
  const std::vector<std::byte> datagram(options.bytes);
  uint64_t refused = 0;
  const uint64_t before = ask_to_drain(control, options);
  uint64_t after = before;
  const std::vector<double> batches = measure_batches(
      options.extent, [] {},
      [&] { refused += send(data, datagram.data(), datagram.size(), 0) < 0 ? 1 : 0; },
      [&] { after = ask_to_drain(control, options); });
  print_cost("udp-send", "datagram delivered into a socket without a waiter", options.extent,
             batches,
             {{"peer", options.peer},
              {"bytes_per_operation", options.bytes},
              {"sent", (options.extent.batches + 1) * options.extent.operations},
              {"refused", refused},
              {"delivered", after - before}});
  close(data);
  close(control);
}

}  // namespace

void add_udp_send(Command costs) {
  static Options options;
  const Command command = costs.add(
      "udp-send", "Sending a datagram into a far socket that nobody waits on (needs udp-sink).");
  add_extent(command, options.extent);
  command.add("--peer", options.peer, "where udp-sink runs", "IP").required();
  command.add("--port", options.port, "its port", "N").required().within(1, 65534);
  command.add("--bind", options.bind, "local address", "IP (default any)");
  command.add("--bytes", options.bytes, "payload of a datagram", "N (default 88)").within(0, 65507);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
