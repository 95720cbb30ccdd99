#include "execute_options.h"

#include <getopt.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace tare::probe {
namespace {

constexpr const char* kHelp =
    "Runs a command again and again, and prints one JSON line an execution.\n\n"
    "execute [options] -- COMMAND ARG...\n"
    "  --become          no more than that: become the command, in the folder, with the variables\n"
    "                    that are handed over as TARE_GIVEN_NAME\n"
    "  --runs N          executions; 0: as many as begin within --for-ns, with what is beside (1)\n"
    "  --for-ns NS       (500000000)\n"
    "  --warmup N        executions before, told as such (0)\n"
    "  --empty N         first time an empty program so often (0)\n"
    "  --empty-shell SH  which is this shell with nothing to do; again for each word more\n"
    "  --prepare LINE    shell line before each execution, outside of its time\n"
    "  --check LINE      after each; its output is told\n"
    "  --cleanup LINE    after that, whatever went wrong\n"
    "  --line-timeout-ns NS  kills such a line after that; 0: never (0)\n"
    "  --stdin FILE      (/dev/null)\n"
    "  --cwd FOLDER\n"
    "  --timeout-ns NS   kills an execution after that; 0: never (0)\n"
    "  --discard         standard output goes to /dev/null\n"
    "  --tell BYTES      of each output of an execution that ended well, at most 65536 (0)\n"
    "  --exit CODE       with which it ends well; minus the signal (0). After another it stops\n"
    "  --at IP --port N  keep a connection there until all is over\n\n"
    "Exit codes: 0 done, however the executions ended; 1 one could not be made; 2 the command "
    "line\n"
    "is wrong.\n";

int64_t parse_number(const char* name, const char* text, int64_t least, int64_t most) {
  char* end = nullptr;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < least || value > most) {
    throw std::invalid_argument("--" + std::string(name) + ": '" + text +
                                "' is no whole number from " + std::to_string(least) + " to " +
                                std::to_string(most));
  }
  return value;
}

}  // namespace

Options parse_options(int argc, char** argv) {
  static const std::array<option, 21> known = {{
      {"runs", required_argument, nullptr, 'r'},
      {"for-ns", required_argument, nullptr, 'f'},
      {"warmup", required_argument, nullptr, 'w'},
      {"empty", required_argument, nullptr, 'e'},
      {"empty-shell", required_argument, nullptr, 's'},
      {"prepare", required_argument, nullptr, 'p'},
      {"check", required_argument, nullptr, 'k'},
      {"cleanup", required_argument, nullptr, 'c'},
      {"stdin", required_argument, nullptr, 'i'},
      {"cwd", required_argument, nullptr, 'd'},
      {"timeout-ns", required_argument, nullptr, 't'},
      {"line-timeout-ns", required_argument, nullptr, 'l'},
      {"become", no_argument, nullptr, 'B'},
      {"discard", no_argument, nullptr, 'n'},
      {"tell", required_argument, nullptr, 'b'},
      {"exit", required_argument, nullptr, 'x'},
      {"at", required_argument, nullptr, 'a'},
      {"port", required_argument, nullptr, 'o'},
      {"help", no_argument, nullptr, 'h'},
      {"nothing", no_argument, nullptr, 'N'},
      {nullptr, 0, nullptr, 0},
  }};
  constexpr int64_t kMostNs = int64_t{7} * 24 * 3600 * kSecond;
  Options options;
  int which = -1;
  for (int found = 0; (found = getopt_long(argc, argv, "+", known.data(), &which)) != -1;) {
    const char* name = which < 0 ? "" : known[static_cast<std::size_t>(which)].name;
    const auto number = [name](int64_t least, int64_t most) {
      return parse_number(name, optarg, least, most);
    };
    switch (found) {
      case 'r':
        options.runs = static_cast<int>(number(0, 1'000'000));
        break;
      case 'f':
        options.for_ns = number(1, kMostNs);
        break;
      case 'w':
        options.warmup = static_cast<int>(number(0, 1'000'000));
        break;
      case 'e':
        options.empty = static_cast<int>(number(0, 1'000));
        break;
      case 's':
        options.empty_shell.emplace_back(optarg);
        break;
      case 'p':
        options.prepare = optarg;
        break;
      case 'k':
        options.check = optarg;
        break;
      case 'c':
        options.cleanup = optarg;
        break;
      case 'i':
        options.input = optarg;
        break;
      case 'd':
        options.folder = optarg;
        break;
      case 't':
        options.timeout_ns = number(0, kMostNs);
        break;
      case 'l':
        options.line_timeout_ns = number(0, kMostNs);
        break;
      case 'B':
        options.become = true;
        break;
      case 'n':
        options.captured = false;
        break;
      case 'b':
        options.told = static_cast<std::size_t>(number(0, kMostTold));
        break;
      case 'x':
        options.expected = static_cast<int>(number(-64, 255));
        break;
      case 'a':
        options.at = optarg;
        break;
      case 'o':
        options.port = static_cast<uint16_t>(number(1, 65535));
        break;
      case 'h':
        fputs(kHelp, stdout);
        exit(0);
      case 'N':
        _exit(0);
      default:
        throw std::invalid_argument("see execute --help");  // getopt has said what is wrong
    }
  }
  options.command.assign(argv + optind, argv + argc);
  if (options.command.empty()) throw std::invalid_argument("no command: execute -- COMMAND ARG...");
  return options;
}

}  // namespace tare::probe
