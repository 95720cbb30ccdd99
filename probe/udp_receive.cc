// Receiving a datagram that is already there: the system call and the copy, no waiting.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "costs.h"
#include "measurement.h"
#include "udp_socket.h"

namespace tare::probe {
namespace {

constexpr int kPatienceMs = 1000;

struct Options {
  Extent extent{.batches = 50, .operations = 100};
  std::size_t bytes = 88;
};

void run(const Options& options) {
  const int receiver = open_udp("127.0.0.1", 0);
  sockaddr_in address = {};
  socklen_t length = sizeof address;
  getsockname(receiver, reinterpret_cast<sockaddr*>(&address), &length);
  const int sender = open_udp("", 0);
  const std::vector<std::byte> datagram(options.bytes);
  std::vector<std::byte> buffer(65536);

  const auto queue = [&] {
    for (uint64_t i = 0; i < options.extent.operations; ++i) {
      if (sendto(sender, datagram.data(), datagram.size(), 0,
                 reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
        throw_errno("cannot send over loopback (is lo up?)");
      }
    }
  };
  const auto take = [&] { return recv(receiver, buffer.data(), buffer.size(), MSG_DONTWAIT) >= 0; };
  const auto receive = [&] {
    if (take()) return;
    // The last ones may be under way yet, where another processor or a busy kernel delivers them.
    pollfd wanted = {receiver, POLLIN, 0};
    if (poll(&wanted, 1, kPatienceMs) != 1 || !take()) {
      throw std::runtime_error("the socket cannot hold " +
                               std::to_string(options.extent.operations) +
                               " datagrams; give fewer --operations");
    }
  };
  print_cost("udp-receive", "receipt of a queued datagram", options.extent,
             measure_batches(options.extent, queue, receive, [] {}),
             {{"bytes_per_operation", options.bytes}});
  close(sender);
  close(receiver);
}

}  // namespace

void add_udp_receive(Command costs) {
  static Options options;
  const Command command =
      costs.add("udp-receive", "Receiving a datagram that is already queued (loopback).");
  add_extent(command, options.extent);
  command.add("--bytes", options.bytes, "payload of a datagram", "N (default 88)").within(0, 65507);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
