#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace tare::echo {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done; 1 it could not start or go on; 2 the command line is wrong;\n"
    "3 no server answered in time; 4 the server stopped answering (samples are written);\n"
    "130 interrupted (samples are written).";

constexpr uint64_t kMostRequests = uint64_t{1} << 31;  // of a phase of one client
constexpr double kLeastRate = 1e-3;                    // requests per second
constexpr double kMostRate = 1e9;

// Adds an option, or remembers that this transport must refuse it.
class OptionTable {
 public:
  OptionTable(CLI::App& command, const Traits& traits) : command_(command), traits_(traits) {}

  /// `shape` stands behind the name in the help: what is to be given, and the default.
  template <typename T>
  CLI::Option* add(bool applies, const char* name, T& value, const char* shape,
                   const std::string& help) {
    return note(applies, command_.add_option(name, value, help)->option_text(shape));
  }

  void flag(bool applies, const char* name, bool& value, const char* help) {
    note(applies, command_.add_flag(name, value, help)->option_text(" "));
  }

  void refuse_foreign() const {
    for (const CLI::Option* option : foreign_) {
      if (option->count() == 0) continue;
      throw UsageError("--" + option->get_lnames().front() + " means nothing to echo-" +
                       std::string(traits_.name) + " (" + std::string(traits_.summary) +
                       "); leave it out");
    }
  }

 private:
  CLI::Option* note(bool applies, CLI::Option* option) {
    if (!applies) foreign_.push_back(option->group(""));  // which hides it from --help
    return option;
  }

  CLI::App& command_;
  const Traits& traits_;
  std::vector<const CLI::Option*> foreign_;
};

void add_endpoint_options(OptionTable& table, const Traits& traits, Endpoint& endpoint) {
  static const std::map<std::string, Reception> receptions = {{"listener", Reception::kListener},
                                                              {"waitset", Reception::kWaitset}};
  table.add(traits.has_bind, "--bind", endpoint.bind, "IP", "local address; default: any");
  table.add(traits.has_port, "--port", endpoint.port, "N", "the server's port")
      ->check(CLI::Range(1, 65535));
  table
      .add(traits.has_domain, "--domain", endpoint.domain, "N (default 0)",
           "DDS domain; stacks that share one spoil each other's figures")
      ->check(CLI::Range(0, 232));
  table.add(traits.has_domain, "--interface", endpoint.interface, "NAME|IP",
            "the one network interface to use, by name or address");
  table
      .add(traits.has_domain, "--reception", endpoint.reception,
           "listener|waitset (default listener)",
           "how data is received: by callback or by a waiting thread")
      ->transform(CLI::CheckedTransformer(receptions));
  table.flag(traits.has_domain, "--no-multicast", endpoint.no_multicast,
             "discover by unicast to the peers only");
}

void check_peers(const Traits& traits, const Endpoint& endpoint) {
  if (traits.has_domain && endpoint.no_multicast && endpoint.peers.empty()) {
    throw UsageError("--no-multicast needs at least one --peer, or nobody is ever found");
  }
  if (traits.has_port && endpoint.port == 0) {
    throw UsageError("--port is missing: give the port that the server answers on");
  }
}

void complete(const Traits& traits, AskOptions& ask) {
  if (traits.needs_peer && ask.endpoint.peers.empty()) {
    throw UsageError("--peer is missing: give the address of the server");
  }
  if (!traits.has_domain && ask.endpoint.peers.size() > 1) {
    throw UsageError("--peer is given " + std::to_string(ask.endpoint.peers.size()) +
                     " times; echo-" + std::string(traits.name) + " asks one server");
  }
  check_peers(traits, ask.endpoint);
  const bool open = ask.mode == Mode::kOpen;
  if (open && ask.rate == 0) {
    throw UsageError("--mode open needs --rate, the requests per second of each client");
  }
  if (open && !(ask.rate >= kLeastRate && ask.rate <= kMostRate)) {
    throw UsageError("--rate is to be from 0.001 to 1000000000 requests per second");
  }
  if (!open && ask.rate != 0) {
    throw UsageError("--rate means nothing in a closed loop, whose replies set the rate");
  }
  if (ask.requests == 0 && ask.duration_ns == 0) {
    throw UsageError("--requests or --duration-ns is missing: say how long to measure");
  }
  if (ask.requests == 0) {
    const double seconds = static_cast<double>(ask.duration_ns) * 1e-9;
    const double due = open ? std::ceil(ask.rate * seconds) : double{kDefaultRequests};
    if (due > double{kMostRequests}) {
      throw UsageError("--rate and --duration-ns make more requests of each client than " +
                       std::to_string(kMostRequests) + "; measure for a shorter time");
    }
    ask.requests = static_cast<uint64_t>(due);
  }
  if (ask.outstanding == 0) ask.outstanding = open ? 16 : 1;
  constexpr int64_t kShortestSlice = 1'000'000;
  ask.endpoint.receive_slice_ns =
      std::clamp(ask.timeout_ns, kShortestSlice, ask.endpoint.receive_slice_ns);
}

}  // namespace

Options parse_command_line(const Traits& traits, int argc, const char* const* argv) {
  static const std::map<std::string, Mode> modes = {{"closed", Mode::kClosed},
                                                    {"open", Mode::kOpen}};
  static const std::map<std::string, Pace> paces = {{"sleep", Pace::kSleep}, {"spin", Pace::kSpin}};

  ServeOptions serve;
  AskOptions ask;
  const std::string name = "echo-" + std::string(traits.name);
  CLI::App app("Request and reply over " + std::string(traits.name) + ": " +
                   std::string(traits.summary) + ".\nStamps and emits; computes no statistics.",
               name);
  app.require_subcommand(1);
  app.footer(kFooter);

  CLI::App* serve_command = app.add_subcommand(
      "serve", "Answer requests until SIGTERM, SIGINT or the end of a pipe on stdin.");
  OptionTable serve_table(*serve_command, traits);
  add_endpoint_options(serve_table, traits, serve.endpoint);
  serve_table.add(traits.has_domain, "--peer", serve.endpoint.peers, "IP",
                  "address to look for others at; may be repeated");
  serve_table
      .add(traits.has_work, "--work-ns", serve.endpoint.work_ns, "N (default 0)",
           "keep the processor busy this long before each reply")
      ->check(CLI::NonNegativeNumber);

  CLI::App* ask_command =
      app.add_subcommand("ask", "Send requests, check the replies, write the raw times.");
  OptionTable ask_table(*ask_command, traits);
  add_endpoint_options(ask_table, traits, ask.endpoint);
  ask_table.add(traits.needs_peer || traits.has_domain, "--peer", ask.endpoint.peers, "IP",
                traits.has_domain ? "address to look for the server at; may be repeated"
                                  : "the server's address");
  ask_table
      .add(!traits.has_server, "--work-ns", ask.endpoint.work_ns, "N (default 0)",
           "keep the processor busy this long before each reply")
      ->check(CLI::NonNegativeNumber);
  ask_table
      .add(true, "--payload", ask.endpoint.payload_bytes, "BYTES",
           "payload of a request: at most " + std::to_string(traits.max_payload) + " bytes")
      ->check(CLI::Range(uint32_t{0}, traits.max_payload))
      ->required();
  ask_table
      .add(true, "--mode", ask.mode, "closed|open (default closed)",
           "closed: the next request follows the reply (service time);\n"
           "open: requests follow a schedule (response time)")
      ->transform(CLI::CheckedTransformer(modes));
  ask_table.add(true, "--rate", ask.rate, "HZ", "open: requests per second of each client");
  ask_table
      .add(true, "--pace", ask.pace, "sleep|spin (default sleep)",
           "open: sleep until each send is due, or spin (punctual,\n"
           "but starves a server that shares the processor)")
      ->transform(CLI::CheckedTransformer(paces));
  ask_table
      .add(true, "--clients", ask.clients, "N (default 1)", "independent requesters, a thread each")
      ->check(CLI::Range(uint32_t{1}, kMaxClients));
  ask_table.add(true, "--requests", ask.requests, "N", "requests of each client to measure")
      ->check(CLI::Range(uint64_t{1}, kMostRequests));
  ask_table
      .add(true, "--duration-ns", ask.duration_ns, "N",
           "stop sending after this time; an open loop sends all\n"
           "that was due within it; alone, it ends at\n"
           "1 000 000 requests a client at the latest")
      ->check(CLI::PositiveNumber);
  ask_table
      .add(true, "--warmup", ask.warmup, "N (default 0)",
           "requests of each client before measuring")
      ->check(CLI::Range(uint64_t{0}, kMostRequests));
  ask_table
      .add(true, "--timeout-ns", ask.timeout_ns, "N (default 1 s)",
           "an unanswered request is lost after this")
      ->check(CLI::PositiveNumber);
  ask_table
      .add(true, "--ready-timeout-ns", ask.ready_timeout_ns, "N (default 10 s)",
           "longest to look for the server before giving up")
      ->check(CLI::PositiveNumber);
  ask_table
      .add(true, "--outstanding", ask.outstanding, "N",
           "most unanswered requests of each client; default 1 closed, 16 open")
      ->check(CLI::Range(1, 1 << 20));
  ask_table.add(true, "--give-up-after", ask.give_up_after, "N (default 10)",
                "end after this many losses in a row; 0: never");
  ask_table
      .add(true, "--out", ask.out, "FILE", "file for the samples (docs/formats/echo-samples.md)")
      ->required();
  ask_table.add(true, "--seed", ask.seed, "N (default 1)", "seed of the pseudo-random payloads");
  ask_table.flag(true, "--start-on-stdin", ask.start_on_stdin,
                 "wait for a line on stdin after each of the events\n"
                 "ready, warm and measured");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested(app.help());
  } catch (const CLI::CallForAllHelp&) {
    throw HelpRequested(app.help("", CLI::AppFormatMode::All));
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> words = app.remaining();
    if (app.get_subcommands().empty() && !words.empty()) {
      throw UsageError("there is no command '" + words.front() + "'");
    }
    throw UsageError(error.what());
  }
  if (serve_command->parsed()) {
    serve_table.refuse_foreign();
    check_peers(traits, serve.endpoint);
    return serve;
  }
  ask_table.refuse_foreign();
  complete(traits, ask);
  return ask;
}

}  // namespace tare::echo
