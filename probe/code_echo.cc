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

void Run(const Options& options) {
  Service service;
  const int fd = OpenUdp(options.bind, options.port);
  PrintLine({{"event", "ready"}, {"bind", options.bind}, {"port", uint64_t{options.port}}});
  ColdData data = {};
  uint64_t value = 1;
  uint64_t requests = 0;
  while (service.WaitFor(fd)) {
    std::array<char, 64> request;
    sockaddr_in asker = {};
    socklen_t length = sizeof asker;
    const ssize_t size = recvfrom(fd, request.data(), request.size(), MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&asker), &length);
    if (size < 1) continue;
    if (request[0] == kWithCode) value = CallColdFunctions(value, data);
    sendto(fd, request.data(), static_cast<std::size_t>(size), 0,
           reinterpret_cast<sockaddr*>(&asker), length);
    ++requests;
  }
  PrintLine({{"event", "stopped"}, {"datagrams", requests}});
  close(fd);
}

}  // namespace

void AddCodeEcho(Command costs) {
  static Options options;
  const Command command =
      costs.Add("code-echo", "The counterpart of request-code: answers datagrams until SIGTERM.");
  command.Add("--bind", options.bind, "local address", "IP (default any)");
  command.Add("--port", options.port, "its port", "N").Required().Within(1, 65535);
  command.Do([] { Run(options); });
}

}  // namespace tare::probe
