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
      : client(MakeClient(options.endpoint, number)),
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

Plan MakePlan(const AskOptions& options, uint32_t index) {
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
void Converse(Requester& requester, const AskOptions& options, uint32_t index,
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
  guarded([&] { requester.found = requester.exchange.Probe(options.ready_timeout_ns); });
  guarded([&] {
    if (!requester.found) return;
    Plan plan = MakePlan(options, index);
    plan.requests = options.warmup;
    plan.duration_ns = 0;
    requester.warmup = requester.exchange.Run(plan, requester.warmup_samples);
  });
  guarded([&] {
    if (!requester.found) return;
    requester.measured = requester.exchange.Run(MakePlan(options, index), requester.samples);
  });
}

// Waits for a line, the end of stdin, or a stop signal.
void AwaitLine() {
  char c = 0;
  while (!g_stop) {
    const ssize_t length = read(STDIN_FILENO, &c, 1);
    if (length == 0 || c == '\n' || (length < 0 && errno != EINTR)) return;
  }
}

void Announce(const nlohmann::json& event, const AskOptions& options) {
  PrintEvent(event);
  if (options.start_on_stdin) AwaitLine();
}

Counters Sum(const std::deque<Requester>& requesters, PhaseResult Requester::*phase) {
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

const char* Name(Ending ending) {
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

nlohmann::json DescribeResult(const AskOptions& options, const std::deque<Requester>& requesters) {
  nlohmann::json done = DescribeEndpoint(options.endpoint);
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
  done["counters"] = ToJson(Sum(requesters, &Requester::measured));
  done["warmup"] = ToJson(Sum(requesters, &Requester::warmup));
  done["ended_by"] = Name(ending);
  done["start_ns"] = start_ns;
  done["end_ns"] = end_ns;
  done["out"] = options.out;
  done["usage"] = OwnUsage();
  return done;
}

int ExitCode(const std::deque<Requester>& requesters) {
  int code = kExitDone;
  for (const Requester& requester : requesters) {
    if (requester.measured.ending == Ending::kGaveUp) code = kExitGaveUp;
  }
  return g_stop ? kExitInterrupted : code;
}

}  // namespace

int Ask(const AskOptions& options) {
  CatchStopSignals();
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
    threads.emplace_back(Converse, std::ref(requesters[i]), std::cref(options), i, std::ref(step));
  }
  ReceiveStopSignalsHere();

  step.arrive_and_wait();
  const bool found = std::all_of(requesters.begin(), requesters.end(),
                                 [](const Requester& requester) { return requester.found; });
  if (found) {
    nlohmann::json ready = DescribeEndpoint(options.endpoint);
    ready["event"] = "ready";
    Announce(ready, options);
  } else {
    for (Requester& requester : requesters) requester.found = false;
  }
  step.arrive_and_wait();
  step.arrive_and_wait();
  if (found) Announce({{"event", "warm"}}, options);
  step.arrive_and_wait();
  step.arrive_and_wait();
  if (found) Announce({{"event", "measured"}}, options);
  step.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();

  for (const Requester& requester : requesters) {
    if (requester.failure) std::rethrow_exception(requester.failure);
  }
  if (!found) {
    if (g_stop) return kExitInterrupted;
    std::cerr << "echo-" << TransportTraits().name << ": no server answered within "
              << options.ready_timeout_ns / 1'000'000
              << " ms; is one running there, with the same port or domain?\n";
    return kExitNoServer;
  }
  SampleFile file{
      .mode = options.mode, .payload_bytes = options.endpoint.payload_bytes, .clients = {}};
  for (const Requester& requester : requesters) {
    file.clients.push_back(std::span(requester.samples).first(requester.measured.counters.sent));
  }
  WriteSamples(options.out, file);
  PrintEvent(DescribeResult(options, requesters));
  return ExitCode(requesters);
}

}  // namespace tare::echo
