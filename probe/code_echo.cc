// The counterpart of request-code: echoes datagrams, and runs code before it does where asked to.
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "cold_functions.h"
#include "costs.h"
#include "line.h"
#include "measurement.h"
#include "request_code.h"
#include "service.h"
#include "udp_socket.h"

namespace tare::probe {
namespace {

struct Options {
  std::string bind = "0.0.0.0";
  uint16_t port = 0;
};

void run(const Options& options) {
  Service service;
  const int fd = open_udp(options.bind, options.port);
  print_line({{"event", "ready"}, {"bind", options.bind}, {"port", uint64_t{options.port}}});
  ColdData data = {};
  uint64_t value = 1;
  uint64_t requests = 0;
  while (service.wait_for(fd)) {
    std::array<char, 64> request;
    sockaddr_in asker = {};
    socklen_t length = sizeof asker;
    const ssize_t size = recvfrom(fd, request.data(), request.size(), MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&asker), &length);
    if (size < 1) continue;
    if (request[0] == kWithCode) value = call_cold_functions(value, data);
    sendto(fd, request.data(), static_cast<std::size_t>(size), 0,
           reinterpret_cast<sockaddr*>(&asker), length);
    ++requests;
  }
  print_line({{"event", "stopped"}, {"datagrams", requests}});
  close(fd);
}

}  // namespace

void add_code_echo(Command costs) {
  static Options options;
  const Command command =
      costs.add("code-echo", "The counterpart of request-code: answers datagrams until SIGTERM.");
  command.add("--bind", options.bind, "local address", "IP (default any)");
  command.add("--port", options.port, "its port", "N").required().within(1, 65535);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
