// The programs as a caller runs them: real processes, real transports, over loopback.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

// A child process with pipes on its standard streams; killed when it goes out of scope.
class Process {
 public:
  explicit Process(Words words) {
    int in[2];
    int out[2];
    int error[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipe");
    }
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(error[1], STDERR_FILENO);
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    close(error[1]);
    stdin_ = in[1];
    stdout_ = fdopen(out[0], "r");
    stderr_ = fdopen(error[0], "r");
  }

  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close_stdin();
    fclose(stdout_);
    fclose(stderr_);
  }

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// The next event, or null at the end of the output.
  json next_event() {
    const std::string line = read_line(stdout_);
    return line.empty() ? json() : json::parse(line);
  }

  std::string output() { return read_all(stdout_); }

  std::string errors() { return read_all(stderr_); }

  void say(const std::string& text) {
    ASSERT_EQ(write(stdin_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  void close_stdin() {
    if (stdin_ >= 0) close(std::exchange(stdin_, -1));
  }

  void signal(int signal) { kill(pid_, signal); }

  /// Waits for the end: the exit code, or minus the signal.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  static std::string read_all(FILE* file) {
    std::string all;
    for (std::string line; !(line = read_line(file)).empty();) all += line;
    return all;
  }

  static std::string read_line(FILE* file) {
    std::string line;
    for (int c; (c = fgetc(file)) != EOF;) {
      line += static_cast<char>(c);
      if (c == '\n') break;
    }
    return line;
  }

  pid_t pid_ = -1;
  int stdin_ = -1;
  FILE* stdout_ = nullptr;
  FILE* stderr_ = nullptr;
};

// How a transport is addressed on loopback, and what it can be asked to vary.
struct Case {
  std::string transport;
  std::string reception = {};  // of a DDS
  bool has_port = false;
  bool answered_by_kernel = false;
  uint64_t most_bytes = 0;
  bool dds() const { return !reception.empty(); }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.transport << " " << c.reception; }

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

std::string program(const std::string& transport) { return ECHO_PROGRAMS + transport; }

std::string help(const std::string& transport, const std::string& command) {
  Process asked({program(transport), command, "--help"});
  return asked.output();
}

// Every transport that was built, as its program's help tells what it is. `null` has no server;
// Connext asks for a licence when it runs.
std::vector<Case> cases() {
  std::vector<Case> cases;
  std::istringstream names(ECHO_TRANSPORTS);
  for (std::string name; names >> name;) {
    if (name == "null" || name == "connext") continue;
    const std::string serve = help(name, "serve");
    const std::string ask = help(name, "ask");
    const auto has = [&](const char* option) { return serve.find(option) != std::string::npos; };
    Case c = {.transport = name,
              .reception = {},
              .has_port = has("--port"),
              .answered_by_kernel = !has("--work-ns"),
              .most_bytes = std::stoull(ask.substr(ask.find("at most ") + 8))};
    if (!has("--reception")) {
      cases.push_back(c);
      continue;
    }
    for (const char* reception : {"listener", "waitset"}) {
      c.reception = reception;
      cases.push_back(c);
    }
  }
  return cases;
}

std::vector<Case> served_cases() {
  std::vector<Case> served = cases();
  std::erase_if(served, [](const Case& one) { return one.answered_by_kernel; });
  return served;
}

// Below those that the kernel gives to whoever connects: one of those may be somebody's soon.
std::string free_port(int type) {
  for (int port = 10000 + getpid() % 20000; port < 32768; ++port) {
    const int fd = socket(AF_INET, type, 0);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
    close(fd);
    if (free) return std::to_string(port);
  }
  ADD_FAILURE() << "no free port: " << strerror(errno);
  return {};
}

class Echo : public testing::TestWithParam<Case> {
 protected:
  Echo() : folder_(fs::temp_directory_path() / ("tare-echo-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    const Case& c = GetParam();
    if (c.dds()) {
      // Domains above 100: away from whatever else runs on this machine.
      address_ = {"--domain",       std::to_string(101 + getpid() % 100),
                  "--interface",    "lo",
                  "--no-multicast", "--peer",
                  "127.0.0.1"};
      both_ = {"--reception", c.reception};
    } else if (c.has_port) {
      port_ = {"--port", free_port(SOCK_STREAM)};
    }
  }
  ~Echo() override { fs::remove_all(folder_); }

  Words serve_words() const {
    const Words bind = GetParam().dds() ? Words{} : Words{"--bind", "127.0.0.1"};
    return Words{program(GetParam().transport), "serve"} + address_ + both_ + port_ + bind;
  }

  Words ask_words() const {
    const Words peer = GetParam().dds() ? Words{} : Words{"--peer", "127.0.0.1"};
    return Words{program(GetParam().transport), "ask", "--out", out().string()} + address_ + both_ +
           port_ + peer;
  }

  fs::path out() const { return folder_ / "samples.bin"; }

  const fs::path folder_;
  Words address_;
  Words both_;
  Words port_;
};

// Runs to the end and returns the last event.
json finish(Process& ask) {
  json last;
  for (json event; !(event = ask.next_event()).is_null();) last = event;
  return last;
}

TEST_P(Echo, AnswersEveryRequestOfAClosedLoop) {
  Process serve(serve_words());
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  Process ask(ask_words() + Words{"--payload", "64", "--requests", "300", "--warmup", "50"});
  const json done = finish(ask);
  ASSERT_EQ(ask.wait(), 0) << ask.errors();
  EXPECT_EQ(done.at("event"), "done");
  EXPECT_EQ(done.at("counters").at("received"), 300);
  EXPECT_EQ(done.at("counters").at("lost"), 0);
  EXPECT_EQ(done.at("counters").at("corrupted"), 0);
  EXPECT_EQ(done.at("warmup").at("received"), 50);
  EXPECT_EQ(done.contains("qos"), GetParam().dds());
  EXPECT_EQ(fs::file_size(out()), 64 + 300 * 32);

  serve.signal(SIGTERM);
  const json stopped = serve.next_event();
  EXPECT_EQ(stopped.at("event"), "stopped");
  EXPECT_GE(stopped.at("replies"), 350);
  EXPECT_EQ(stopped.at("bad"), 0);
  EXPECT_EQ(serve.wait(), 0);
}

TEST_P(Echo, AnswersSeveralClientsInAnOpenLoop) {
  Process serve(serve_words());
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  Process ask(ask_words() + Words{"--payload", "512", "--mode", "open", "--rate", "500",
                                  "--clients", "2", "--requests", "100"});
  const json done = finish(ask);
  ASSERT_EQ(ask.wait(), 0) << ask.errors();
  EXPECT_EQ(done.at("counters").at("sent"), 200);
  EXPECT_EQ(done.at("counters").at("received"), 200);
  EXPECT_EQ(done.at("mode"), "open");
  EXPECT_EQ(fs::file_size(out()), 64 + 200 * 32);
}

// Larger than one datagram can be; ICMP and UDP carry what fits.
TEST_P(Echo, CarriesLargePayloads) {
  Process serve(serve_words());
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  const std::string payload = std::to_string(std::min<uint64_t>(GetParam().most_bytes, 200'000));
  Process ask(ask_words() + Words{"--payload", payload, "--requests", "20"});
  const json done = finish(ask);
  ASSERT_EQ(ask.wait(), 0) << ask.errors();
  EXPECT_EQ(done.at("counters").at("received"), 20);
}

TEST_P(Echo, WaitsForALineBeforeEachStepWhenAsked) {
  Process serve(serve_words());
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  Process ask(ask_words() + Words{"--payload", "64", "--requests", "50", "--start-on-stdin"});
  for (const char* event : {"ready", "warm", "measured"}) {
    EXPECT_EQ(ask.next_event().at("event"), event);
    EXPECT_FALSE(fs::exists(out()));
    ask.say("go\n");
  }
  EXPECT_EQ(ask.next_event().at("event"), "done");
  EXPECT_EQ(ask.wait(), 0);
  EXPECT_TRUE(fs::exists(out()));
}

TEST_P(Echo, ServerEndsWithTheOneWhoStartedIt) {
  Process serve(serve_words());
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  serve.close_stdin();
  EXPECT_EQ(serve.next_event().at("event"), "stopped");
  EXPECT_EQ(serve.wait(), 0);
}

TEST_P(Echo, InterruptedWritesWhatItHas) {
  Process serve(serve_words());
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  Process ask(ask_words() + Words{"--payload", "64", "--duration-ns", "60000000000"});
  ASSERT_EQ(ask.next_event().at("event"), "ready");
  ASSERT_EQ(ask.next_event().at("event"), "warm");
  ask.signal(SIGINT);
  const json done = finish(ask);
  EXPECT_EQ(done.at("event"), "done");
  EXPECT_EQ(done.at("ended_by"), "interrupted");
  EXPECT_EQ(ask.wait(), 130);
  EXPECT_EQ(fs::file_size(out()), 64 + done.at("counters").at("sent").get<uint64_t>() * 32);
}

// The kernel answers ICMP by itself.
class ServedEcho : public Echo {};

TEST_P(ServedEcho, SaysWhenNoServerAnswers) {
  Process ask(ask_words() +
              Words{"--payload", "64", "--requests", "5", "--ready-timeout-ns", "300000000"});
  EXPECT_EQ(ask.wait(), 3);
  EXPECT_NE(ask.errors().find("no server answered within 300 ms"), std::string::npos);
  EXPECT_FALSE(fs::exists(out()));
}

TEST_P(ServedEcho, GivesUpOnAServerThatIsKilledAndKeepsTheSamples) {
  Process serve(serve_words());
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  Process ask(ask_words() + Words{"--payload", "64", "--requests", "1000000", "--start-on-stdin",
                                  "--timeout-ns", "50000000", "--give-up-after", "3"});
  ASSERT_EQ(ask.next_event().at("event"), "ready");
  ask.say("go\n");
  ASSERT_EQ(ask.next_event().at("event"), "warm");
  ask.say("go\n");
  serve.signal(SIGKILL);
  ASSERT_EQ(ask.next_event().at("event"), "measured");
  ask.say("go\n");
  const json done = finish(ask);
  EXPECT_EQ(done.at("ended_by"), "gave-up");
  EXPECT_EQ(ask.wait(), 4);
  const json& counters = done.at("counters");
  EXPECT_GE(counters.at("lost"), 1);
  EXPECT_EQ(counters.at("received").get<int>() + counters.at("lost").get<int>(),
            counters.at("sent").get<int>());
}

TEST_P(Echo, RefusesBadArgumentsWithCodeTwo) {
  for (const Words& words : {Words{}, Words{"ask"}, Words{"serve", "--port", "x"}, Words{"boil"},
                             Words{"ask", "--no"}}) {
    Process process(Words{program(GetParam().transport)} + words);
    EXPECT_EQ(process.wait(), 2);
    EXPECT_NE(process.errors().find("--help"), std::string::npos);
  }
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.transport + (info.param.dds() ? "_" + info.param.reception : "");
}

INSTANTIATE_TEST_SUITE_P(Over, Echo, testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Over, ServedEcho, testing::ValuesIn(served_cases()), name_of);

// Both types were made of one IDL file, by two generators: on one domain the stacks understand
// each other. It is also why a measurement gives each stack a domain of its own.
TEST(EchoAcrossVendors, CycloneAsksAndFastDdsAnswers) {
  const fs::path out = fs::temp_directory_path() / ("tare-vendors-" + std::to_string(getpid()));
  const Words address = {"--domain",       std::to_string(101 + getpid() % 100),
                         "--interface",    "lo",
                         "--no-multicast", "--peer",
                         "127.0.0.1"};
  Process serve(Words{program("fastdds"), "serve"} + address);
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  Process ask(Words{program("cyclonedds"), "ask", "--payload", "64", "--requests", "50", "--out",
                    out.string()} +
              address);
  const json done = finish(ask);
  EXPECT_EQ(ask.wait(), 0) << ask.errors();
  EXPECT_EQ(done.at("counters").at("received"), 50);
  fs::remove(out);
}

TEST(EchoTcp, ServerWhoseClientTakesNothingEndsWhenToldTo) {
  const std::string port = free_port(SOCK_STREAM);
  Process serve({program("tcp"), "serve", "--bind", "127.0.0.1", "--port", port});
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  // A header (docs/formats): magic, requester, sequence, bytes of payload, checksum.
  std::string request(24 + 60000, '\0');
  const uint32_t words[] = {0x45524154, 1, 0, 60000};
  std::memcpy(request.data(), words, sizeof words);
  // Until neither side's sockets have room left: the server waits in its send.
  const timeval patience = {.tv_sec = 0, .tv_usec = 300'000};
  setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  while (send(client, request.data(), request.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(request.size())) {
  }
  serve.signal(SIGTERM);
  EXPECT_EQ(serve.next_event().at("event"), "stopped");
  EXPECT_EQ(serve.wait(), 0);
  close(client);
}

TEST(EchoTcp, AsksASlowServerForOneLargeAnswerAtATime) {
  const std::string port = free_port(SOCK_STREAM);
  Process serve(
      {program("tcp"), "serve", "--bind", "127.0.0.1", "--port", port, "--work-ns", "300000000"});
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  const fs::path out = fs::temp_directory_path() / ("tare-tcp-" + std::to_string(getpid()));
  Process ask({program("tcp"), "ask", "--bind", "127.0.0.1", "--peer", "127.0.0.1", "--port", port,
               "--payload", "33554432", "--requests", "2", "--timeout-ns", "60000000000", "--out",
               out.string()});
  EXPECT_EQ(finish(ask).at("counters").at("received"), 2);
  EXPECT_EQ(ask.wait(), 0) << ask.errors();
  fs::remove(out);
}

TEST(EchoTcp, ClientWhoseServerTakesNothingGivesUpAndKeepsWhatItHas) {
  const std::string port = free_port(SOCK_STREAM);
  Process serve({program("tcp"), "serve", "--bind", "127.0.0.1", "--port", port});
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  const fs::path out = fs::temp_directory_path() / ("tare-tcp-" + std::to_string(getpid()));
  Process ask({program("tcp"), "ask", "--bind", "127.0.0.1", "--peer", "127.0.0.1", "--port", port,
               "--payload", "33554432", "--requests", "100000", "--start-on-stdin", "--out",
               out.string()});
  ASSERT_EQ(ask.next_event().at("event"), "ready");
  ask.say("go\n");
  ASSERT_EQ(ask.next_event().at("event"), "warm");
  serve.signal(SIGSTOP);
  ask.say("go\n");
  ASSERT_EQ(ask.next_event().at("event"), "measured");
  ask.say("go\n");
  EXPECT_EQ(finish(ask).at("ended_by"), "gave-up");
  EXPECT_EQ(ask.wait(), 4) << ask.errors();
  EXPECT_TRUE(fs::exists(out));
  fs::remove(out);
}

// Of its first request, which is larger than the sockets' room, it would wait for ever.
TEST(EchoTcp, ClientWhoseServerTakesNotEvenTheFirstRequestEnds) {
  const std::string port = free_port(SOCK_STREAM);
  Process serve({program("tcp"), "serve", "--bind", "127.0.0.1", "--port", port});
  ASSERT_EQ(serve.next_event().at("event"), "ready");
  serve.signal(SIGSTOP);
  const Words words = {program("tcp"),
                       "ask",
                       "--bind",
                       "127.0.0.1",
                       "--peer",
                       "127.0.0.1",
                       "--port",
                       port,
                       "--payload",
                       "33554432",
                       "--requests",
                       "2",
                       "--ready-timeout-ns",
                       "3000000000",
                       "--out",
                       "/absent/x"};
  Process ask(words);
  EXPECT_EQ(ask.wait(), 1);
  const std::string errors = ask.errors();
  EXPECT_NE(errors.find("the server takes no more requests"), std::string::npos) << errors;
}

TEST(EchoNull, AnswersItselfAndHasNoServer) {
  const fs::path out = fs::temp_directory_path() / ("tare-null-" + std::to_string(getpid()));
  Process ask({program("null"), "ask", "--payload", "64", "--requests", "1000", "--work-ns", "1000",
               "--out", out.string()});
  const json done = finish(ask);
  EXPECT_EQ(ask.wait(), 0) << ask.errors();
  EXPECT_EQ(done.at("counters").at("received"), 1000);
  fs::remove(out);
  Process serve({program("null"), "serve"});
  EXPECT_EQ(serve.wait(), 1);
  EXPECT_NE(serve.errors().find("answers itself"), std::string::npos);
}

TEST(EchoSamples, ThatCannotBeWrittenEndWithAnErrorThatNamesTheFile) {
  Process ask({program("null"), "ask", "--payload", "64", "--requests", "1", "--out", "/absent/x"});
  EXPECT_EQ(ask.wait(), 1);
  EXPECT_NE(ask.errors().find("/absent/x"), std::string::npos);
}

// Server work is time that each request takes at least.
TEST(EchoWork, IsPartOfEveryRoundTrip) {
  const std::string port = free_port(SOCK_DGRAM);
  const fs::path out = fs::temp_directory_path() / ("tare-work-" + std::to_string(getpid()));
  Process serve(
      {program("udp"), "serve", "--bind", "127.0.0.1", "--port", port, "--work-ns", "300000"});
  ASSERT_EQ(serve.next_event().at("work_ns"), 300000);
  Process ask({program("udp"), "ask", "--peer", "127.0.0.1", "--port", port, "--payload", "64",
               "--requests", "20", "--out", out.string()});
  finish(ask);
  ASSERT_EQ(ask.wait(), 0);
  std::ifstream file(out, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t at = 64; at < bytes.size(); at += 32) {
    int64_t times[3];
    std::memcpy(times, &bytes[at + 8], sizeof times);
    EXPECT_GE(times[2] - times[1], 300000);
  }
  fs::remove(out);
}

}  // namespace
