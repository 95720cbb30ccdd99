#include "ask.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <deque>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "output.h"
#include "signals.h"

namespace tare::echo {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitNoServer = 3;
constexpr int kExitGaveUp = 4;
constexpr int kExitInterrupted = 130;

// One client with all it needs, reserved before the measurement.
struct Requester {
  Requester(const AskOptions& options, uint32_t index, uint32_t number)
      : client(make_client(options.endpoint, number)),
        payloads(options.seed + index, options.endpoint.payload_bytes),
        exchange(*client, number, index, payloads, options.endpoint.receive_slice_ns, g_stop),
        warmup_samples(options.warmup),
        samples(options.requests) {}

  std::unique_ptr<Client> client;
  PayloadSource payloads;
  Exchange exchange;
  std::vector<Sample> warmup_samples;
  std::vector<Sample> samples;
  bool found = false;
  PhaseResult warmup;
  PhaseResult measured;
  std::exception_ptr failure;
};

Plan make_plan(const AskOptions& options, uint32_t index) {
  Plan plan{.mode = options.mode,
            .requests = options.requests,
            .duration_ns = options.duration_ns,
            .rate = options.rate,
            .first_send_ns = 0,
            .pace = options.pace,
            .outstanding = options.outstanding,
            .timeout_ns = options.timeout_ns,
            .give_up_after = options.give_up_after};
  if (options.mode == Mode::kOpen) {
    // The clients' schedules interleave instead of striking together.
    plan.first_send_ns = static_cast<int64_t>(1e9 / options.rate * index / options.clients);
  }
  return plan;
}

// The life of a client's thread. At each step all threads wait twice for the main thread: once
// to tell it that the step is done, once until it allows the next. A thread that has failed
// still keeps step.
void converse(Requester& requester, const AskOptions& options, uint32_t index,
              std::barrier<>& step) {
  pthread_setname_np(pthread_self(), ("client-" + std::to_string(index)).c_str());
  prctl(PR_SET_TIMERSLACK, 1UL);  // or sleeps of the open loop end up to 50 us late by choice
  const auto guarded = [&](auto&& work) {
    try {
      if (!requester.failure) work();
    } catch (...) {
      requester.failure = std::current_exception();
    }
    step.arrive_and_wait();
    step.arrive_and_wait();
  };
  guarded([&] { requester.found = requester.exchange.probe(options.ready_timeout_ns); });
  guarded([&] {
    if (!requester.found) return;
    Plan plan = make_plan(options, index);
    plan.requests = options.warmup;
    plan.duration_ns = 0;
    requester.warmup = requester.exchange.run(plan, requester.warmup_samples);
  });
  guarded([&] {
    if (!requester.found) return;
    requester.measured = requester.exchange.run(make_plan(options, index), requester.samples);
  });
}

// Waits for a line, the end of stdin, or a stop signal.
void await_line() {
  char c = 0;
  while (!g_stop) {
    const ssize_t length = read(STDIN_FILENO, &c, 1);
    if (length == 0 || c == '\n' || (length < 0 && errno != EINTR)) return;
  }
}

void announce(const nlohmann::json& event, const AskOptions& options) {
  print_event(event);
  if (options.start_on_stdin) await_line();
}

Counters sum(const std::deque<Requester>& requesters, PhaseResult Requester::*phase) {
  Counters sum;
  for (const Requester& requester : requesters) {
    const Counters& one = (requester.*phase).counters;
    sum.sent += one.sent;
    sum.received += one.received;
    sum.lost += one.lost;
    sum.late += one.late;
    sum.duplicated += one.duplicated;
    sum.reordered += one.reordered;
    sum.corrupted += one.corrupted;
    sum.foreign += one.foreign;
    sum.refused += one.refused;
  }
  return sum;
}

const char* name(Ending ending) {
  switch (ending) {
    case Ending::kRequests:
      return "requests";
    case Ending::kDuration:
      return "duration";
    case Ending::kInterrupted:
      return "interrupted";
    case Ending::kGaveUp:
      return "gave-up";
  }
  return "";
}

nlohmann::json describe_result(const AskOptions& options, const std::deque<Requester>& requesters) {
  nlohmann::json done = describe_endpoint(options.endpoint);
  int64_t start_ns = requesters.front().measured.start_ns;
  int64_t end_ns = 0;
  Ending ending = Ending::kRequests;
  for (const Requester& requester : requesters) {
    start_ns = std::min(start_ns, requester.measured.start_ns);
    end_ns = std::max(end_ns, requester.measured.end_ns);
    ending = std::max(ending, requester.measured.ending);
  }
  done["event"] = "done";
  done["mode"] = options.mode == Mode::kClosed ? "closed" : "open";
  done["payload_bytes"] = options.endpoint.payload_bytes;
  done["clients"] = options.clients;
  done["outstanding_per_client"] = options.outstanding;
  done["timeout_ns"] = options.timeout_ns;
  done["seed"] = options.seed;
  if (options.mode == Mode::kOpen) {
    done["rate_per_client"] = options.rate;
    done["pace"] = options.pace == Pace::kSleep ? "sleep" : "spin";
  }
  done["counters"] = to_json(sum(requesters, &Requester::measured));
  done["warmup"] = to_json(sum(requesters, &Requester::warmup));
  done["ended_by"] = name(ending);
  done["start_ns"] = start_ns;
  done["end_ns"] = end_ns;
  done["out"] = options.out;
  done["usage"] = own_usage();
  return done;
}

int exit_code(const std::deque<Requester>& requesters) {
  int code = kExitDone;
  for (const Requester& requester : requesters) {
    if (requester.measured.ending == Ending::kGaveUp) code = kExitGaveUp;
  }
  return g_stop ? kExitInterrupted : code;
}

}  // namespace

int ask(const AskOptions& options) {
  catch_stop_signals();
  // Two processes that ask one server over one reply topic must not take each other's replies.
  const uint32_t session = std::random_device{}() << 10;
  static_assert(kMaxClients == 1 << 10);
  std::deque<Requester> requesters;
  for (uint32_t i = 0; i < options.clients; ++i) {
    requesters.emplace_back(options, i, session | i);
  }

  std::barrier step(static_cast<std::ptrdiff_t>(options.clients) + 1);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < options.clients; ++i) {
    threads.emplace_back(converse, std::ref(requesters[i]), std::cref(options), i, std::ref(step));
  }
  receive_stop_signals_here();

  step.arrive_and_wait();
  const bool found = std::all_of(requesters.begin(), requesters.end(),
                                 [](const Requester& requester) { return requester.found; });
  if (found) {
    nlohmann::json ready = describe_endpoint(options.endpoint);
    ready["event"] = "ready";
    announce(ready, options);
  } else {
    for (Requester& requester : requesters) requester.found = false;
  }
  step.arrive_and_wait();
  step.arrive_and_wait();
  if (found) announce({{"event", "warm"}}, options);
  step.arrive_and_wait();
  step.arrive_and_wait();
  if (found) announce({{"event", "measured"}}, options);
  step.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();

  for (const Requester& requester : requesters) {
    if (requester.failure) std::rethrow_exception(requester.failure);
  }
  if (!found) {
    if (g_stop) return kExitInterrupted;
    std::cerr << "echo-" << transport_traits().name << ": no server answered within "
              << options.ready_timeout_ns / 1'000'000
              << " ms; is one running there, with the same port or domain?\n";
    return kExitNoServer;
  }
  SampleFile file{
      .mode = options.mode, .payload_bytes = options.endpoint.payload_bytes, .clients = {}};
  for (const Requester& requester : requesters) {
    file.clients.push_back(std::span(requester.samples).first(requester.measured.counters.sent));
  }
  write_samples(options.out, file);
  print_event(describe_result(options, requesters));
  return exit_code(requesters);
}

}  // namespace tare::echo
