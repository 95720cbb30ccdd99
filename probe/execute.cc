// Runs a command again and again, and prints one JSON line an execution: its times, what its kernel
// counted of it, how it ended, what it wrote. No statistics.
//
// A program of its own, static and small: it works in any root, of whatever libraries, and what it
// holds in memory is the least peak that it can see of a command (exec keeps the parent's).
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "become.h"
#include "execute_options.h"

namespace {

using nlohmann::json;
using tare::probe::kSecond;
using tare::probe::Options;
using tare::probe::Words;

constexpr std::size_t kTail = 4 << 10;  // of what is told of a failure
constexpr off_t kMostHeld = 16 << 20;   // of one output in memory, beyond its two ends
constexpr const char* kShell = "/bin/sh";
constexpr int kMostRuns = 200;  // where time decides
constexpr suseconds_t kLookAgainUs = 100'000;
constexpr int64_t kOrphansNs = 5'000'000'000;

std::runtime_error failed(const std::string& what, int error) {
  return std::runtime_error(what + ": " + strerror(error));
}

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

int64_t nanoseconds(const timeval& time) {
  return int64_t{time.tv_sec} * kSecond + int64_t{time.tv_usec} * 1'000;
}

void print(const json& line) {
  // What a program wrote may be no UTF-8.
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace);
  if (printf("%s\n", text.c_str()) < 0 || fflush(stdout) != 0) throw failed("cannot print", errno);
}

// What a program writes, in memory: nobody is woken to read while it runs, and it never waits.
class Output {
 public:
  explicit Output(bool captured)
      : captured_(captured),
        fd_(captured ? memfd_create("output", MFD_CLOEXEC)
                     : open("/dev/null", O_WRONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw failed("cannot make room for what the command writes", errno);
    // Whoever opens /dev/stdout writes from its beginning.
    if (captured) fcntl(fd_, F_SETFL, O_APPEND);
  }
  ~Output() { close(fd_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int fd() const { return fd_; }

  // Gives the memory of the middle back, however much comes.
  void bound() {
    const off_t end = size() - static_cast<off_t>(tare::probe::kMostTold);
    if (!captured_ || end - given_back_ < kMostHeld) return;
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, given_back_, end - given_back_);
    given_back_ = end;
  }

  off_t size() const {
    struct stat status = {};
    return captured_ && fstat(fd_, &status) == 0 ? status.st_size : 0;
  }

  // All of it, or its two ends where it is more than `most`.
  std::string text(std::size_t most) const {
    const auto length = static_cast<std::size_t>(size());
    if (length <= most) return read(0, length);
    return read(0, most / 2) + "\n[...]\n" + read(length - most / 2, most / 2);
  }

  std::string tail() const {
    const auto length = static_cast<std::size_t>(size());
    return length <= kTail ? read(0, length) : read(length - kTail, kTail);
  }

 private:
  std::string read(std::size_t from, std::size_t count) const {
    std::string text(count, '\0');
    const ssize_t got = pread(fd_, text.data(), count, static_cast<off_t>(from));
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }

  bool captured_;
  int fd_;
  off_t given_back_ = static_cast<off_t>(tare::probe::kMostTold);
};

// What the kernel counts of a process and the descendants that it waited for, which nobody has
// reaped yet; empty where it does not tell. Source: proc(5), /proc/PID/io.
std::map<std::string, int64_t> transferred(pid_t child) {
  std::map<std::string, int64_t> found;
  FILE* file = fopen(("/proc/" + std::to_string(child) + "/io").c_str(), "re");
  if (file == nullptr) return found;
  char name[32];
  long long value = 0;
  while (fscanf(file, "%31[^:]: %lld\n", name, &value) == 2) found[name] = value;
  fclose(file);
  return found;
}

struct Ended {
  int64_t wall_ns = 0;
  int status = 0;
  bool timed_out = false;
  rusage usage = {};
  std::map<std::string, int64_t> transferred;

  int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }
};

volatile std::sig_atomic_t g_told_to_end = 0;

// What the terminal sends reaches no command, which is in a process group of its own: it is ended,
// and whatever it started, before this program ends.
void end_when_told() {
  struct sigaction action = {};
  action.sa_handler = [](int signal) { g_told_to_end = signal; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup execute ...
  }
}

// Wakes whoever waits for a child, to look at the time and at what was written.
class Ticks {
 public:
  Ticks() {
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    every(kLookAgainUs);
  }
  ~Ticks() { every(0); }
  Ticks(const Ticks&) = delete;
  Ticks& operator=(const Ticks&) = delete;

 private:
  static void every(suseconds_t period) {
    const itimerval timer = {{0, period}, {0, period}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }
};

// The file of a program, as posix_spawnp looks for it.
std::string where_is(const std::string& name) {
  const char* const usual = getenv("PATH");
  std::string_view folders = usual == nullptr ? "" : usual;
  if (name.find('/') != std::string::npos) return name;
  while (!folders.empty()) {
    const std::string_view folder = folders.substr(0, folders.find(':'));
    std::string found = std::string(folder.empty() ? "." : folder) + "/" + name;
    struct stat status {};
    if (stat(found.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        access(found.c_str(), X_OK) == 0) {
      return found;
    }
    folders.remove_prefix(std::min(folders.size(), folder.size() + 1));
  }
  return name;
}

// As bash judges what it is to run: no zero byte in its first line. A program of another machine
// has one.
bool is_text(const std::string& path) {
  std::array<char, 128> start{};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t length = fd < 0 ? 0 : read(fd, start.data(), start.size());
  if (fd >= 0) close(fd);
  const std::string_view line(start.data(), static_cast<std::size_t>(std::max<ssize_t>(0, length)));
  return !line.empty() && line.substr(0, line.find('\n')).find('\0') == std::string_view::npos;
}

// Starts a program in a process group of its own. Throws a sentence where it cannot be started.
pid_t start_program(const Words& words, int input, int output, int errors) {
  std::vector<char*> argv = tare::probe::pointers_to(words);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = -1;
  const int error = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOEXEC) {
    const std::string script = where_is(words[0]);
    if (is_text(script)) {
      // One without #!, which a shell runs, as it does what is typed.
      Words by = {kShell, script};
      by.insert(by.end(), words.begin() + 1, words.end());
      return start_program(by, input, output, errors);
    }
  }
  if (error != 0) throw failed("cannot start " + words[0], error);
  return child;
}

Ended run_once(const Words& words, int input, Output& output, Output& errors, int64_t timeout_ns) {
  Ended ended;
  const Ticks ticks;
  const int64_t start = now_ns();
  const pid_t child = start_program(words, input, output.fd(), errors.fd());
  siginfo_t info = {};
  // Not reaped yet: /proc still tells of it. What lost its parent (Orphans) is, as init would.
  while (info.si_pid != child) {
    info.si_pid = 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0) {
      if (info.si_pid != child) waitpid(info.si_pid, nullptr, WNOHANG);
      continue;
    }
    if (errno != EINTR) throw failed("cannot wait for " + words[0], errno);
    output.bound();
    errors.bound();
    if (g_told_to_end != 0) kill(-child, SIGKILL);
    if (timeout_ns > 0 && !ended.timed_out && now_ns() - start > timeout_ns) {
      ended.timed_out = true;
      kill(-child, SIGKILL);
    }
  }
  ended.wall_ns = now_ns() - start;
  // It may have ended by itself since it was looked at last.
  ended.timed_out = timeout_ns > 0 && ended.wall_ns > timeout_ns;
  ended.transferred = transferred(child);
  while (wait4(child, &ended.status, 0, &ended.usage) != child) {
    if (errno != EINTR) throw failed("cannot wait for " + words[0], errno);
  }
  if (g_told_to_end != 0) {
    throw std::runtime_error("told to end by signal " + std::to_string(g_told_to_end));
  }
  return ended;
}

// Runs a line of shell beside the measured time; returns what it wrote. Throws where it failed.
std::string beside(const char* what, const std::string& line, int64_t timeout_ns) {
  if (line.empty()) return "";
  Output output(true);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0) throw failed("cannot open /dev/null", errno);
  const Ended ended = run_once({kShell, "-c", line}, nothing, output, output, timeout_ns);
  close(nothing);
  if (ended.code() != 0 || ended.timed_out) {
    const std::string how =
        ended.timed_out ? "did not end within " + std::to_string(timeout_ns / kSecond) + " s"
                        : "ended with code " + std::to_string(ended.code());
    throw std::runtime_error(std::string(what) + " '" + line + "' " + how + ": " + output.tail());
  }
  return output.text(tare::probe::kMostTold);
}

json line_of(const Ended& ended, const Output& output, const Output& errors) {
  const rusage& usage = ended.usage;
  json line = {
      {"event", "execution"},
      {"code", ended.code()},
      {"timed_out", ended.timed_out},
      {"wall_ns", ended.wall_ns},
      {"user_ns", nanoseconds(usage.ru_utime)},
      {"system_ns", nanoseconds(usage.ru_stime)},
      {"peak_bytes", int64_t{usage.ru_maxrss} * 1024},
      {"minor_faults", usage.ru_minflt},
      {"major_faults", usage.ru_majflt},
      {"voluntary_switches", usage.ru_nvcsw},
      {"involuntary_switches", usage.ru_nivcsw},
      // Blocks of 512 bytes, whatever the device's are.
      {"storage_read_bytes", int64_t{usage.ru_inblock} * 512},
      {"storage_written_bytes", int64_t{usage.ru_oublock} * 512},
      {"stdout_bytes", output.size()},
      {"stderr_bytes", errors.size()},
  };
  const std::map<std::string, const char*> names = {{"rchar", "read_bytes"},
                                                    {"wchar", "written_bytes"},
                                                    {"read_bytes", "storage_read_bytes"},
                                                    {"write_bytes", "storage_written_bytes"}};
  for (const auto& [name, value] : ended.transferred) {
    if (const auto known = names.find(name); known != names.end()) line[known->second] = value;
  }
  return line;
}

// One execution with its preparation and its check. Returns whether it ended as expected; its line
// tells how.
bool prepared_and_checked(const Options& options, json& line) {
  beside("the preparation", options.prepare, options.line_timeout_ns);
  struct stat status = {};
  // To open one waits for whoever writes to it.
  if (stat(options.input.c_str(), &status) == 0 && S_ISFIFO(status.st_mode))
    throw std::runtime_error(options.input + " is a pipe: an input is read anew each time");
  const int input = open(options.input.c_str(), O_RDONLY | O_CLOEXEC);
  if (input < 0) throw failed("cannot open " + options.input + " as its input", errno);
  Output output(options.captured);
  Output errors(true);
  const Ended ended = run_once(options.command, input, output, errors, options.timeout_ns);
  close(input);
  line = line_of(ended, output, errors);
  const bool well = ended.code() == options.expected && !ended.timed_out;
  line["stdout"] = well ? output.text(options.told) : output.tail();
  line["stderr"] = well ? errors.text(options.told) : errors.tail();
  if (well) line["check"] = beside("the check", options.check, options.line_timeout_ns);
  return well;
}

// The same, and cleaned up after: the next one begins as this one did.
bool execute(const Options& options, bool warmup) {
  const int64_t start = now_ns();
  const auto clean_up = [&options] {
    beside("the clean-up", options.cleanup, options.line_timeout_ns);
  };
  json line;
  bool well = false;
  try {
    well = prepared_and_checked(options, line);
  } catch (const std::exception& error) {
    if (g_told_to_end != 0) throw;
    try {
      clean_up();
    } catch (const std::exception& also) {
      throw std::runtime_error(std::string(error.what()) + "; then " + also.what());
    }
    throw;
  }
  clean_up();
  line["warmup"] = warmup;
  line["round_ns"] = now_ns() - start;
  print(line);
  return well;
}

// What starting costs: a program that ends at once, this one or a shell with nothing to do.
void measure_empty(const Options& options) {
  if (options.empty == 0) return;
  Words words = {"/proc/self/exe", "--nothing"};
  if (!options.empty_shell.empty()) {
    words = options.empty_shell;
    words.insert(words.end(), {"-c", ""});
  }
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  Output output(false);
  std::vector<int64_t> walls;
  for (int i = 0; i <= options.empty; ++i) {
    const Ended ended = run_once(words, nothing, output, output, 0);
    if (ended.code() != 0) {
      throw std::runtime_error("an empty program (" + words[0] + ") ended with code " +
                               std::to_string(ended.code()));
    }
    if (i > 0) walls.push_back(ended.wall_ns);  // the first warms up
  }
  close(nothing);
  print({{"event", "empty"}, {"wall_ns", walls}});
}

// A connection that closes when all is over: whoever waits for that need not ask meanwhile, which
// in a guest would take the command's own processor.
int connect_meeting(const Options& options) {
  if (options.at.empty()) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (inet_pton(AF_INET, options.at.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error("'" + options.at + "' is no IPv4 address");
  }
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw failed("cannot reach " + options.at, errno);
  }
  return fd;
}

// Ends what a command left running, such as a server in the background, once all is over: whatever
// loses its parent below this process becomes its child (prctl(2), PR_SET_CHILD_SUBREAPER).
class Orphans {
 public:
  Orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~Orphans() {
    const int64_t start = now_ns();
    while (waitpid(-1, nullptr, WNOHANG) >= 0 && now_ns() - start < kOrphansNs) {
      kill_all();
      usleep(1000);
    }
  }
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

 private:
  // Source: proc(5), /proc/PID/task/TID/children.
  static void kill_all() {
    const std::string path = "/proc/self/task/" + std::to_string(getpid()) + "/children";
    FILE* file = fopen(path.c_str(), "re");
    if (file == nullptr) return;
    int child = 0;
    while (fscanf(file, "%d", &child) == 1) kill(child, SIGKILL);
    fclose(file);
  }
};

void enter(const std::string& folder) {
  if (!folder.empty() && chdir(folder.c_str()) != 0)
    throw failed("cannot work in " + folder, errno);
}

void run(const Options& options) {
  const Orphans orphans;
  enter(options.folder);
  measure_empty(options);
  for (int i = 0; i < options.warmup; ++i) {
    if (!execute(options, true)) return;
  }
  const int64_t start = now_ns();
  for (int i = 0; options.runs > 0 ? i < options.runs : i < kMostRuns; ++i) {
    if (options.runs == 0 && i > 0 && now_ns() - start >= options.for_ns) break;
    if (!execute(options, false)) return;
  }
}

// Exit code; what goes wrong is said.
int execute(int argc, char** argv) {
  Options options;
  try {
    options = tare::probe::parse_options(argc, argv);
  } catch (const std::invalid_argument& error) {
    fprintf(stderr, "execute: %s\n", error.what());
    return 2;
  }
  try {
    if (options.become) {
      enter(options.folder);
      tare::probe::become(options.command);
    }
  } catch (const std::exception& error) {
    fprintf(stderr, "execute: %s\n", error.what());
    return 127;
  }
  end_when_told();
  try {
    const int meeting = connect_meeting(options);
    run(options);
    print({{"event", "done"}});
    if (meeting >= 0) close(meeting);
    return 0;
  } catch (const std::exception& error) {
    const json line = {{"event", "failed"}, {"why", error.what()}};
    puts(line.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return execute(argc, argv);
  } catch (...) {
    return 1;  // it could not even be said
  }
}
