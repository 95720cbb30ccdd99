// Code in the middle of a request: what a middleware's path costs once a datagram has woken it,
// through every layer that lies between client and server and has run since.
//
// Batches of requests with the code alternate with batches without it; their difference is what
// the code costs there, so that neither the way nor the wake-ups stand in it.
#include "request_code.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
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
  Asker(const Options& options) : options_(options), fd_(OpenUdp("", 0, kPatienceMs)) {
    const sockaddr_in address = Ipv4Address(options.peer, options.port);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      ThrowErrno("cannot reach " + options.peer);
    }
  }
  ~Asker() { close(fd_); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  // Mean nanoseconds of a request.
  double Batch(bool code) {
    const bool here = options_.side == "here";
    std::array<char, 64> datagram = {};
    datagram[0] = code && !here ? kWithCode : kPlain;
    const int64_t start = Now();
    for (uint64_t i = 0; i < options_.extent.operations; ++i) {
      Request(datagram);
      if (code && here) value_ = CallColdFunctions(value_, data_);
    }
    return static_cast<double>(Now() - start) / static_cast<double>(options_.extent.operations);
  }

 private:
  void Request(std::array<char, 64>& datagram) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (send(fd_, datagram.data(), datagram.size(), 0) > 0 &&
          recv(fd_, datagram.data(), datagram.size(), 0) > 0) {
        return;
      }
    }
    throw std::runtime_error("no code-echo answers at " + options_.peer + " port " +
                             std::to_string(options_.port) + "; start `probe code-echo --port " +
                             std::to_string(options_.port) + "` there");
  }

  const Options& options_;
  const int fd_;
  uint64_t value_ = 1;
  ColdData data_ = {};
};

void Run(const Options& options) {
  Asker asker(options);
  asker.Batch(true);  // not counted: page faults, translation
  asker.Batch(false);
  std::vector<double> batches;
  for (uint32_t batch = 0; batch < options.extent.batches; ++batch) {
    const double with = asker.Batch(true);
    const double without = asker.Batch(false);
    batches.push_back((with - without) / kColdFunctions);
  }
  PrintCost("request-code", "function called once in a request", options.extent, batches,
            {{"functions", kColdFunctions}, {"side", options.side}, {"peer", options.peer}});
}

}  // namespace

void AddRequestCode(Command costs) {
  static Options options;
  const Command command =
      costs.Add("request-code", "Calling functions in the middle of a request (needs code-echo).");
  AddExtent(command, options.extent);
  command.Add("--peer", options.peer, "where code-echo runs", "IP").Required();
  command.Add("--port", options.port, "its port", "N").Required().Within(1, 65535);
  command
      .Add("--side", options.side, "who calls them: the asker or the one who answers",
           "here|there (default there)")
      .OneOf({"here", "there"});
  command.Do([] { Run(options); });
}

}  // namespace tare::probe
