// The command line of `execute`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "words.h"

namespace tare::probe {

constexpr int64_t kSecond = 1'000'000'000;
// Of one output; a line of 1 MiB is all that is read.
constexpr std::size_t kMostTold = 64 << 10;

struct Options {
  int runs = 1;  // 0: as many as begin within for_ns
  int64_t for_ns = kSecond / 2;
  int warmup = 0;
  int empty = 0;
  Words empty_shell;
  std::string prepare, check, cleanup;
  std::string input = "/dev/null";
  std::string folder;
  int64_t timeout_ns = 0;
  int64_t line_timeout_ns = 0;  // of what is run beside an execution
  bool become = false;
  bool captured = true;
  std::size_t told = 0;
  int expected = 0;
  std::string at;
  uint16_t port = 0;
  Words command;
};

/// Reads a command line; prints the help, or does nothing, and exits where that is asked for.
/// Throws std::invalid_argument with a sentence.
Options parse_options(int argc, char** argv);

}  // namespace tare::probe
