#include "command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tare::echo {
namespace {

constexpr Traits kSocket = {.name = "udp",
                            .summary = "UDP datagrams",
                            .has_port = true,
                            .has_bind = true,
                            .max_payload = 65483};
constexpr Traits kDds = {.name = "cyclonedds",
                         .summary = "Cyclone DDS",
                         .has_domain = true,
                         .needs_peer = false,
                         .max_payload = 1 << 26};

Options parse(const Traits& traits, std::vector<const char*> words) {
  words.insert(words.begin(), "echo");
  return parse_command_line(traits, static_cast<int>(words.size()), words.data());
}

std::string error_of(const Traits& traits, const std::vector<const char*>& words) {
  try {
    parse(traits, words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

const std::vector<const char*> kAsk = {"ask", "--peer",     "10.0.0.1", "--port", "7", "--payload",
                                       "64",  "--requests", "10",       "--out",  "f"};

std::vector<const char*> ask_with(std::vector<const char*> more) {
  more.insert(more.begin(), kAsk.begin(), kAsk.end());
  return more;
}

TEST(CommandLine, ReadsAClosedLoop) {
  const auto ask = std::get<AskOptions>(parse(kSocket, ask_with({"--warmup", "5"})));
  EXPECT_EQ(ask.endpoint.peers, std::vector<std::string>{"10.0.0.1"});
  EXPECT_EQ(ask.endpoint.port, 7);
  EXPECT_EQ(ask.endpoint.payload_bytes, 64u);
  EXPECT_EQ(ask.mode, Mode::kClosed);
  EXPECT_EQ(ask.outstanding, 1u);
  EXPECT_EQ(ask.requests, 10u);
  EXPECT_EQ(ask.warmup, 5u);
}

TEST(CommandLine, ReadsAnOpenLoopAndReservesRoomForItsDuration) {
  const auto ask = std::get<AskOptions>(
      parse(kSocket, {"ask", "--peer", "a", "--port", "7", "--payload", "0", "--out", "f", "--mode",
                      "open", "--rate", "1000", "--duration-ns", "1500000000", "--pace", "spin"}));
  EXPECT_EQ(ask.mode, Mode::kOpen);
  EXPECT_EQ(ask.pace, Pace::kSpin);
  EXPECT_EQ(ask.requests, 1500u);
  EXPECT_EQ(ask.outstanding, 16u);
}

TEST(CommandLine, ReadsADdsServer) {
  const auto serve = std::get<ServeOptions>(parse(
      kDds, {"serve", "--domain", "9", "--reception", "waitset", "--interface", "lo",
             "--no-multicast", "--peer", "1.2.3.4", "--peer", "1.2.3.5", "--work-ns", "100"}));
  EXPECT_EQ(serve.endpoint.domain, 9u);
  EXPECT_EQ(serve.endpoint.reception, Reception::kWaitset);
  EXPECT_TRUE(serve.endpoint.no_multicast);
  EXPECT_EQ(serve.endpoint.peers.size(), 2u);
  EXPECT_EQ(serve.endpoint.work_ns, 100);
}

TEST(CommandLine, RefusesWhatMeansNothingToTheTransport) {
  EXPECT_EQ(error_of(kSocket, ask_with({"--reception", "waitset"})),
            "--reception means nothing to echo-udp (UDP datagrams); leave it out");
  EXPECT_NE(error_of(kSocket, ask_with({"--domain", "3"})), "");
  EXPECT_NE(error_of(kDds, ask_with({})), "");  // --port
}

TEST(CommandLine, SaysWhatIsMissing) {
  EXPECT_NE(
      error_of(kSocket, {"ask", "--port", "7", "--payload", "1", "--requests", "1", "--out", "f"})
          .find("--peer is missing"),
      std::string::npos);
  EXPECT_NE(error_of(kSocket, {"serve"}).find("--port is missing"), std::string::npos);
  EXPECT_EQ(error_of(kSocket, {"answer", "--port", "7"}), "there is no command 'answer'");
  EXPECT_NE(error_of(kSocket, {"ask", "--peer", "a", "--port", "7", "--payload", "1", "--out", "f"})
                .find("--requests or --duration-ns"),
            std::string::npos);
  EXPECT_NE(error_of(kSocket, ask_with({"--mode", "open"})).find("needs --rate"),
            std::string::npos);
  EXPECT_NE(error_of(kSocket, ask_with({"--rate", "5"})).find("closed loop"), std::string::npos);
  EXPECT_NE(error_of(kSocket, ask_with({"--peer", "b"})).find("asks one server"),
            std::string::npos);
  EXPECT_NE(error_of(kDds, {"serve", "--no-multicast"}).find("--peer"), std::string::npos);
}

TEST(CommandLine, RefusesValuesOutOfRange) {
  for (const std::vector<const char*>& more :
       std::vector<std::vector<const char*>>{{"--port", "65536"},
                                             {"--clients", "0"},
                                             {"--timeout-ns", "-1"},
                                             {"--mode", "ajar"},
                                             {"--requests", "many"},
                                             {"--unknown"}}) {
    EXPECT_NE(error_of(kSocket, ask_with(more)), "") << more.front();
  }
  for (const char* rate : {"nan", "inf", "1e300", "1e-300"}) {
    EXPECT_NE(
        error_of(kSocket, ask_with({"--mode", "open", "--rate", rate})).find("--rate is to be"),
        std::string::npos)
        << rate;
  }
  // The room that is reserved follows from both.
  EXPECT_NE(error_of(kSocket, {"ask", "--peer", "a", "--port", "7", "--payload", "1", "--out", "f",
                               "--mode", "open", "--rate", "1e9", "--duration-ns", "1000000000000"})
                .find("measure for a shorter time"),
            std::string::npos);
  EXPECT_NE(error_of(kSocket, {"ask", "--peer", "a", "--port", "7", "--payload", "65484",
                               "--requests", "1", "--out", "f"}),
            "");
  EXPECT_NE(error_of(kSocket, {}), "");
}

TEST(CommandLine, ShowsInItsHelpOnlyWhatTheTransportHas) {
  const auto help = [](const Traits& traits) -> std::string {
    try {
      parse(traits, {"ask", "--help"});
    } catch (const HelpRequested& requested) {
      return requested.what();
    }
    return "";
  };
  EXPECT_NE(help(kSocket).find("--port"), std::string::npos);
  EXPECT_EQ(help(kSocket).find("--reception"), std::string::npos);
  EXPECT_NE(help(kDds).find("--reception"), std::string::npos);
  EXPECT_NE(help(kDds).find("Exit codes"), std::string::npos);
}

}  // namespace
}  // namespace tare::echo
