// Code in the middle of a request: what a middleware's path costs once a datagram has woken it,
// through every layer that lies between client and server and has run since.
//
// Batches of requests with the code alternate with batches without it; their difference is what
// the code costs there, so that neither the way nor the wake-ups stand in it.
#include "request_code.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>

#include "cold_functions.h"
#include "costs.h"
#include "measurement.h"
#include "udp_socket.h"

namespace tare::probe {
namespace {

constexpr int kPatienceMs = 1000;
constexpr int kAttempts = 5;  // a datagram may be lost, and a batch with a loss stands out

struct Options {
  Extent extent{.batches = 20, .operations = 50};
  std::string peer;
  uint16_t port = 0;
  std::string side = "there";
};

class Asker {
 public:
  Asker(const Options& options) : options_(options), fd_(open_udp("", 0, kPatienceMs)) {
    const sockaddr_in address = ipv4_address(options.peer, options.port);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw_errno("cannot reach " + options.peer);
    }
  }
  ~Asker() { close(fd_); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  // Mean nanoseconds of a request.
  double batch(bool code) {
    const bool here = options_.side == "here";
    std::array<char, 64> datagram = {};
    datagram[0] = code && !here ? kWithCode : kPlain;
    const int64_t start = now_ns();
    for (uint64_t i = 0; i < options_.extent.operations; ++i) {
      request(datagram);
      if (code && here) value_ = call_cold_functions(value_, data_);
    }
    return static_cast<double>(now_ns() - start) / static_cast<double>(options_.extent.operations);
  }

 private:
  void request(std::array<char, 64>& datagram) {
    ++number_;
    std::memcpy(&datagram[1], &number_, sizeof number_);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (send(fd_, datagram.data(), datagram.size(), 0) < 0) continue;
      // An answer that comes after its request was given up is not the next one's: taken for it,
      // every request from then on would be over before it was answered.
      std::array<char, 64> answer = {};
      while (recv(fd_, answer.data(), answer.size(), 0) > 0) {
        if (answer == datagram) return;
      }
    }
    throw std::runtime_error("no code-echo answers at " + options_.peer + " port " +
                             std::to_string(options_.port) + "; start `probe code-echo --port " +
                             std::to_string(options_.port) + "` there");
  }

  const Options& options_;
  const int fd_;
  uint64_t number_ = 0;  // of the request, behind its first byte
  uint64_t value_ = 1;
  ColdData data_ = {};
};

void run(const Options& options) {
  Asker asker(options);
  asker.batch(true);  // not counted: page faults, translation
  asker.batch(false);
  std::vector<double> batches;
  for (uint32_t batch = 0; batch < options.extent.batches; ++batch) {
    const double with = asker.batch(true);
    const double without = asker.batch(false);
    batches.push_back((with - without) / kColdFunctions);
  }
  print_cost("request-code", "function called once in a request", options.extent, batches,
             {{"functions", kColdFunctions}, {"side", options.side}, {"peer", options.peer}});
}

}  // namespace

void add_request_code(Command costs) {
  static Options options;
  const Command command =
      costs.add("request-code", "Calling functions in the middle of a request (needs code-echo).");
  add_extent(command, options.extent);
  command.add("--peer", options.peer, "where code-echo runs", "IP").required();
  command.add("--port", options.port, "its port", "N").required().within(1, 65535);
  command
      .add("--side", options.side, "who calls them: the asker or the one who answers",
           "here|there (default there)")
      .one_of({"here", "there"});
  command.calls([] { run(options); });
}

}  // namespace tare::probe
