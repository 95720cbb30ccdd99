// The program as a caller runs it. What a cost is, is never asserted: only that it is measured.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using nlohmann::json;

struct Outcome {
  int code = 0;
  std::string out;
};

Outcome read_all(FILE* pipe) {
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.out += buffer.data();
  outcome.code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

Outcome run_probe(const std::string& arguments) {
  return read_all(popen((PROBE_PROGRAM " " + arguments + " 2>&1 </dev/null").c_str(), "r"));
}

class Cost : public testing::TestWithParam<const char*> {};

TEST_P(Cost, IsOneLineWithTheMeanOfEachBatch) {
  const Outcome outcome = run_probe(std::string(GetParam()) + " --batches 3 --operations 10");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(outcome.out.find('\n'), outcome.out.size() - 1);
  const json line = json::parse(outcome.out);
  EXPECT_EQ(
      line.at("probe").get<std::string>() + " ",
      (std::string(GetParam()) + " ").substr(0, line.at("probe").get<std::string>().size() + 1));
  EXPECT_EQ(line.at("unit"), "ns");
  EXPECT_EQ(line.at("operations_per_batch"), 10);
  EXPECT_GT(line.at("clock_overhead_ns"), 0);
  EXPECT_EQ(line.at("batches").size(), 3u);
  // What cold code costs beyond warm code is a difference: of ten calls, noise may turn it round.
  const bool is_difference = line.at("probe") == "cold-code";
  for (const json& mean : line.at("batches")) EXPECT_TRUE(is_difference || mean > 0) << mean;
}

INSTANTIATE_TEST_SUITE_P(Of, Cost,
                         testing::Values("clock", "timer --interval-ns 100000", "syscall", "wakeup",
                                         "wakeup --kind process", "wakeup --via futex",
                                         "wakeup --kind process --via futex", "wakeup --via pipe",
                                         "page-fault", "memory-copy --bytes 4096", "integer",
                                         "floating-point", "cold-code", "udp-receive"));

TEST(UdpReceive, WaitsForDatagramsThatAnotherProcessorStillDelivers) {
  if (geteuid() != 0 || sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    GTEST_SKIP() << "another processor that delivers takes two, and root";
  }
  const std::string script = std::string("mount -t sysfs none /sys && ip link set lo up && ") +
                             "echo 2 >/sys/class/net/lo/queues/rx-0/rps_cpus && taskset -c 0 " +
                             PROBE_PROGRAM + " udp-receive --batches 2000";
  FILE* pipe = popen(("unshare --net --mount sh -c '" + script + "' 2>&1").c_str(), "r");
  const Outcome outcome = read_all(pipe);
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(json::parse(outcome.out).at("batches").size(), 2000U);
}

TEST(ContextSwitch, CountsTheSwitchesThatHappened) {
  const Outcome outcome = run_probe("context-switch --batches 3 --operations 2000");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_GT(json::parse(outcome.out).at("switches"), 0);
}

TEST(Wakeup, FromIdleNeedsTwoProcessors) {
  const Outcome outcome =
      run_probe("wakeup --from-idle --idle-ns 100000 --batches 2 --operations 5");
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.out.find("two processors"), std::string::npos);
  } else {
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    EXPECT_EQ(json::parse(outcome.out).at("from_idle"), true);
  }
}

TEST(Block, ReadsAFilePastThePageCache) {
  // Beside the program: /tmp may be a tmpfs, which knows no O_DIRECT on some kernels.
  const std::string path = std::string(PROBE_PROGRAM) + "-block-" + std::to_string(getpid());
  std::ofstream(path) << std::string(std::size_t{64} * 4096, 'x');
  const Outcome outcome = run_probe("block --batches 2 --operations 8 --device " + path);
  std::filesystem::remove(path);
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(json::parse(outcome.out).at("bytes_per_operation"), 4096);
}

TEST(Block, NamesTheDeviceThatItCannotOpen) {
  const Outcome outcome = run_probe("block --device /dev/absent");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("/dev/absent"), std::string::npos);
}

// Below those that the kernel gives to whoever connects: one of those may be somebody's soon.
std::string free_port_pair() {
  for (auto port = static_cast<uint16_t>(10000 + getpid() % 20000);; port += 2) {
    bool free = true;
    for (const uint16_t one : {port, static_cast<uint16_t>(port + 1)}) {
      const int fd = socket(AF_INET, SOCK_DGRAM, 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(one);
      free = free && bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
      close(fd);
    }
    if (free) return std::to_string(port);
  }
}

TEST(UdpSend, IsDeliveredIntoASinkThatEndsWithTheOneWhoStartedIt) {
  const std::string port = free_port_pair();
  // The pipe's other end is ours: closing it ends the sink.
  FILE* sink = popen(
      (std::string(PROBE_PROGRAM) + " udp-sink --bind 127.0.0.1 --port " + port + " >/dev/null")
          .c_str(),
      "w");
  Outcome outcome;
  for (int attempt = 0; attempt < 50; ++attempt) {  // until the sink is there
    outcome =
        run_probe("udp-send --peer 127.0.0.1 --port " + port + " --batches 3 --operations 20");
    if (outcome.code == 0) break;
  }
  EXPECT_EQ(WEXITSTATUS(pclose(sink)), 0);
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  const json line = json::parse(outcome.out);
  EXPECT_EQ(line.at("sent"), 80);  // with the batch that is not counted
  EXPECT_EQ(line.at("delivered"), 80);
}

TEST(RequestCode, IsAskedOfAnEchoOnEitherSide) {
  const std::string port = free_port_pair();
  FILE* echo = popen(
      (std::string(PROBE_PROGRAM) + " code-echo --bind 127.0.0.1 --port " + port + " >/dev/null")
          .c_str(),
      "w");
  for (const std::string side : {"here", "there"}) {
    std::string asked = "request-code --peer 127.0.0.1 --batches 3 --operations 20 --port ";
    asked.append(port).append(" --side ").append(side);
    Outcome outcome;
    for (int attempt = 0; attempt < 50; ++attempt) {  // until the echo is there
      outcome = run_probe(asked);
      if (outcome.code == 0) break;
    }
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    const json line = json::parse(outcome.out);
    EXPECT_EQ(line.at("side"), side);
    EXPECT_EQ(line.at("batches").size(), 3u);
  }
  EXPECT_EQ(WEXITSTATUS(pclose(echo)), 0);
}

// Runs the probe against a counterpart that answers the question `late` only when it is asked
// again: what comes then must not be taken for the answer to a later one. `answer_to` gets a
// question and how many there were. Returns all questions, in their order.
template <typename Answer>
std::vector<std::string> asked(int port, const std::string& arguments, std::size_t late,
                               Answer&& answer_to, Outcome& outcome) {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::atomic<bool> over = false;
  std::thread asker([&] {
    outcome = run_probe(arguments);
    over = true;
    sendto(fd, "", 0, 0, reinterpret_cast<sockaddr*>(&address), sizeof address);
  });
  std::vector<std::string> questions;
  std::string held;
  while (!over) {
    std::array<char, 64> question;
    sockaddr_in from = {};
    socklen_t length = sizeof from;
    const ssize_t size = recvfrom(fd, question.data(), question.size(), 0,
                                  reinterpret_cast<sockaddr*>(&from), &length);
    if (size <= 0) continue;
    questions.emplace_back(question.data(), static_cast<std::size_t>(size));
    const std::string answer = answer_to(questions.back(), questions.size());
    if (questions.size() == late) {
      held = answer;
      continue;
    }
    for (const std::string& one : {std::exchange(held, {}), answer}) {
      if (one.empty()) continue;
      sendto(fd, one.data(), one.size(), 0, reinterpret_cast<sockaddr*>(&from), length);
    }
  }
  asker.join();
  close(fd);
  return questions;
}

TEST(RequestCode, TakesNoLateAnswerForThatToALaterRequest) {
  const std::string port = free_port_pair();
  const auto echo = [](const std::string& question, std::size_t) { return question; };
  Outcome outcome;
  const auto questions = asked(
      std::stoi(port), "request-code --peer 127.0.0.1 --batches 2 --operations 20 --port " + port,
      30, echo, outcome);
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  // Three batches with the code, and after each as many requests without it; one was repeated.
  ASSERT_EQ(questions.size(), 121u);
  EXPECT_EQ(questions[29], questions[30]);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    EXPECT_EQ(questions[i][0], (i > 29 ? i - 1 : i) / 20 % 2 == 0 ? 'c' : 'p') << i;
  }
}

TEST(RequestCode, SaysThatNoEchoAnswers) {
  const Outcome outcome = run_probe("request-code --peer 127.0.0.1 --port " + free_port_pair());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("code-echo"), std::string::npos);
}

TEST(UdpSend, TakesNoLateAnswerOfTheSinkForThatToALaterQuestion) {
  const std::string port = free_port_pair();
  const auto ten_more = [](const std::string& question, std::size_t number) {
    return question + std::string(7, '\0') + static_cast<char>(10 * number);
  };
  Outcome outcome;
  asked(std::stoi(port) + 1, "udp-send --peer 127.0.0.1 --batches 2 --operations 20 --port " + port,
        2, ten_more, outcome);
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  // Of five questions, one of them repeated.
  EXPECT_EQ(json::parse(outcome.out).at("delivered"), 40);
}

TEST(UdpSend, SaysThatNoSinkAnswers) {
  const Outcome outcome = run_probe("udp-send --peer 127.0.0.1 --port " + free_port_pair());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("no udp-sink answers at 127.0.0.1"), std::string::npos);
}

// In a network namespace of its own, where the answers can only come from the tap.
TEST(TapEcho, AnswersIcmpAndUdpThroughTheTapAndRemovesItAtTheEnd) {
  if (geteuid() != 0 || access("/dev/net/tun", R_OK | W_OK) != 0) {
    GTEST_SKIP() << "making a tap needs root and /dev/net/tun";
  }
  const std::string at = "/tmp/tare-tap-" + std::to_string(getpid());
  const std::string ask = " ask --peer 10.99.0.2 --payload 64 --requests 100 --out " + at + ".bin ";
  const std::string script =
      "mkfifo " + at + "; " + PROBE_PROGRAM + " tap-echo --name tare-tap <" + at + " >" + at +
      ".out & exec 4>" + at + "; until grep -q ready " + at + ".out; do :; done; " +
      "ip addr add 10.99.0.1/24 dev tare-tap; " + ECHO_ICMP + ask + "; " + ECHO_UDP + ask +
      "--port 7777; exec 4>&-; wait; cat " + at + ".out; rm " + at + "*; ip link show tare-tap";
  FILE* pipe = popen(("unshare --net sh -c '" + script + "' 2>&1").c_str(), "r");
  const Outcome outcome = read_all(pipe);
  const auto received = outcome.out.find("\"received\":100");
  EXPECT_NE(received, std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\"received\":100", received + 1), std::string::npos) << outcome.out;
  const auto echoes = outcome.out.find("\"echoes\":");
  ASSERT_NE(echoes, std::string::npos) << outcome.out;
  // With a probe of each, and more where an answer was late.
  EXPECT_GE(std::stoi(outcome.out.substr(echoes + 9)), 202) << outcome.out;
  EXPECT_NE(outcome.out.find("does not exist"), std::string::npos) << outcome.out;
}

TEST(Probe, RelaysBetweenNothingButTaps) {
  const Outcome outcome = run_probe("relay --near 0 --far 0 --room 1000000");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("descriptor 0 is no tap"), std::string::npos) << outcome.out;
}

TEST(Probe, RefusesBadArgumentsWithCodeTwo) {
  for (const char* arguments :
       {"", "boil", "timer --interval-ns 0", "udp-send", "syscall --batches 0", "relay",
        "relay --near 0 --far 0 --room 1000000 --loss 5"}) {
    const Outcome outcome = run_probe(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.out.find("--help"), std::string::npos);
  }
  EXPECT_NE(run_probe("boil").out.find("there is no cost 'boil'"), std::string::npos);
}

}  // namespace
