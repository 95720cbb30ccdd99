// Two programs on two machines that must run at the same time: each waits here until the host lets
// all of them go, over a connection that stays open as long as the program runs, so that the host
// sees when it ends. A program that tells one rate of all of its time is run again and again
// instead, so that those of its runs can be counted that fell into the time of all sides.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "costs.h"
#include "measurement.h"
#include "words.h"

namespace tare::probe {
namespace {

// A line of 1 MiB is all that a reader takes.
constexpr std::size_t kMostOutput = 768 << 10;
constexpr std::size_t kMostOutputAgain = 4 << 10;
constexpr std::size_t kMostRuns = kMostOutput / kMostOutputAgain;

struct Options {
  std::string at;
  uint16_t port = 0;
  bool again = false;
  std::vector<std::string> program;
};

// Connects, and waits for one byte. Returns the connection, which programs do not inherit.
int wait_until_all_are_here(const Options& options) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_errno("cannot make a socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (inet_pton(AF_INET, options.at.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error("'" + options.at + "' is no IPv4 address");
  }
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw_errno("cannot reach the meeting point " + options.at);
  }
  char go = 0;
  const ssize_t count = read(fd, &go, sizeof go);
  if (count < 0) throw_errno("cannot wait at the meeting point");
  if (count == 0) throw std::runtime_error("the meeting was called off");
  return fd;
}

[[noreturn]] void become(const Words& program, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  std::vector<char*> argv = pointers_to(program);
  execvp(argv[0], argv.data());
  _exit(127);
}

// Returns what was written, or the last `most` bytes of it.
std::string read_to_its_end(int fd, std::size_t most) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > most) text.erase(0, text.size() - most);
  }
}

int64_t nanoseconds(const timeval& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1'000;
}

// One run of the program; times in ns, CLOCK_MONOTONIC.
struct Finished {
  int64_t start = 0;
  int64_t end = 0;
  int64_t user = 0;
  int64_t system = 0;
  int code = 0;
  std::string output;
};

Finished run_once(const std::vector<std::string>& program, std::size_t most_output) {
  std::array<int, 2> output = {};
  if (pipe2(output.data(), O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  Finished run;
  run.start = now_ns();
  const pid_t child = fork();
  if (child < 0) throw_errno("cannot fork");
  if (child == 0) become(program, output[1]);
  close(output[1]);
  run.output = read_to_its_end(output[0], most_output);
  close(output[0]);
  int status = 0;
  rusage usage = {};
  if (wait4(child, &status, 0, &usage) != child) throw_errno("cannot wait for the program");
  run.end = now_ns();
  run.user = nanoseconds(usage.ru_utime);
  run.system = nanoseconds(usage.ru_stime);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return run;
}

// Tells by one byte that a run is over. Returns whether another is wanted: whoever has let go says
// by a second byte that it is enough, or is gone.
bool another_is_wanted(int meeting) {
  const char over = '.';
  if (send(meeting, &over, sizeof over, MSG_NOSIGNAL) != sizeof over) return false;
  char enough = 0;
  const ssize_t count = recv(meeting, &enough, sizeof enough, MSG_DONTWAIT);
  return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

std::vector<Finished> run_again_and_again(const Options& options, int meeting) {
  std::vector<Finished> runs;
  do {
    runs.push_back(run_once(options.program, kMostOutputAgain));
  } while (runs.back().code == 0 && runs.size() < kMostRuns && another_is_wanted(meeting));
  return runs;
}

void run(const Options& options) {
  const int meeting = wait_until_all_are_here(options);
  const std::vector<Finished> runs =
      options.again ? run_again_and_again(options, meeting)
                    : std::vector<Finished>{run_once(options.program, kMostOutput)};
  close(meeting);
  const int64_t start = runs.front().start;
  int64_t user = 0;
  int64_t system = 0;
  nlohmann::json each = nlohmann::json::array();
  for (const Finished& run : runs) {
    user += run.user;
    system += run.system;
    each.push_back(
        {{"start_ns", run.start - start}, {"end_ns", run.end - start}, {"output", run.output}});
  }
  nlohmann::json line = {
      {"event", "done"}, {"code", runs.back().code}, {"wall_ns", runs.back().end - start},
      {"user_ns", user}, {"system_ns", system},
  };
  if (options.again) {
    line["runs"] = each;
  }
  line["output"] = runs.back().output;
  // What the program wrote may be no UTF-8.
  std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

}  // namespace

void add_meet(Command costs) {
  static Options options;
  const Command command = costs.add(
      "meet",
      "Wait at a meeting point until everybody is let go, then run a program, and print one line:\n"
      "its exit code, its times, what it wrote. The connection closes when it ends.");
  command.add_flag("--again", options.again,
                   "run it again and again, telling each end by a byte, until a byte comes back");
  command.add("--at", options.at, "address of who lets go", "IP").required();
  command.add("--port", options.port, "port of it", "N").required().within(1, 65535);
  command
      .add("program", options.program, "the program and its arguments, after --", "PROGRAM ARG...")
      .required();
  command.calls([] { run(options); });
}

}  // namespace tare::probe
