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
bool stdin_means_something() {
  struct stat status = {};
  if (fstat(STDIN_FILENO, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || isatty(STDIN_FILENO) == 1;
}

void wait_for_stop(const std::atomic<bool>& server_ended) {
  constexpr int kLookMs = 50;
  pollfd input = {
      .fd = stdin_means_something() ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
  while (!g_stop && !server_ended) {
    if (poll(&input, 1, kLookMs) <= 0) continue;
    char ignored[256];
    if (read(STDIN_FILENO, ignored, sizeof ignored) <= 0) return;
  }
}

}  // namespace

int serve(const ServeOptions& options) {
  catch_stop_signals();
  const std::unique_ptr<Server> server = make_server(options.endpoint);
  std::atomic<bool> stop = false;
  std::atomic<bool> ended = false;
  std::exception_ptr failure;
  std::thread answering([&] {
    try {
      server->serve(stop);
    } catch (...) {
      failure = std::current_exception();
    }
    ended = true;
  });
  receive_stop_signals_here();

  nlohmann::json ready = describe_endpoint(options.endpoint);
  ready["event"] = "ready";
  ready["work_ns"] = options.endpoint.work_ns;
  print_event(ready);

  wait_for_stop(ended);
  stop = true;
  answering.join();
  print_event({{"event", "stopped"},
               {"transport", transport_traits().name},
               {"requests", server->counters.requests.load()},
               {"replies", server->counters.replies.load()},
               {"bad", server->counters.bad.load()},
               {"usage", own_usage()}});
  if (failure) std::rethrow_exception(failure);
  return 0;
}

}  // namespace tare::echo
