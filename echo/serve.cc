#include "serve.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "output.h"
#include "signals.h"

namespace tare::echo {
namespace {

// A pipe, socket or terminal ends when whoever started us goes away. /dev/null and files are
// at their end from the start and say nothing.
bool StdinMeansSomething() {
  struct stat status = {};
  if (fstat(STDIN_FILENO, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || isatty(STDIN_FILENO) == 1;
}

void WaitForStop(const std::atomic<bool>& server_ended) {
  constexpr int kLookMs = 50;
  pollfd input = {.fd = StdinMeansSomething() ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
  while (!g_stop && !server_ended) {
    if (poll(&input, 1, kLookMs) <= 0) continue;
    char ignored[256];
    if (read(STDIN_FILENO, ignored, sizeof ignored) <= 0) return;
  }
}

}  // namespace

int Serve(const ServeOptions& options) {
  CatchStopSignals();
  const std::unique_ptr<Server> server = MakeServer(options.endpoint);
  std::atomic<bool> stop = false;
  std::atomic<bool> ended = false;
  std::exception_ptr failure;
  std::thread answering([&] {
    try {
      server->Serve(stop);
    } catch (...) {
      failure = std::current_exception();
    }
    ended = true;
  });
  ReceiveStopSignalsHere();

  nlohmann::json ready = DescribeEndpoint(options.endpoint);
  ready["event"] = "ready";
  ready["work_ns"] = options.endpoint.work_ns;
  PrintEvent(ready);

  WaitForStop(ended);
  stop = true;
  answering.join();
  PrintEvent({{"event", "stopped"},
              {"transport", TransportTraits().name},
              {"requests", server->counters.requests.load()},
              {"replies", server->counters.replies.load()},
              {"bad", server->counters.bad.load()},
              {"usage", OwnUsage()}});
  if (failure) std::rethrow_exception(failure);
  return 0;
}

}  // namespace tare::echo
