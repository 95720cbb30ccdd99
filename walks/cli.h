// The command line: what a user asks for, as one value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "import.h"
#include "power.h"

namespace walks {

enum class Command { generate, convert, info, power, paths, triangles, between, verify, bench };

struct Options {
  Command command = Command::info;
  std::string graph;   // input
  std::string result;  // of verify
  std::string output;

  Access access;
  int threads = 0;
  bool json = false;
  bool quiet = false;

  // Cell width and tile of what is written; nothing: as the input's.
  std::optional<std::uint32_t> cell;
  std::optional<std::uint64_t> tile;

  ImportRequest import;
  std::string for_texts;  // an option that was given and is for texts alone, if any
  bool to_market = false;

  std::uint64_t vertices = 0;
  double probability = 0.02;
  std::uint64_t seed = 1;
  bool loops = false;

  std::uint64_t exponent = 2;
  Schedule schedule = Schedule::steps;
  bool discard = false;
  bool verify = false;
  std::uint64_t verify_rows = 0;

  std::uint64_t longest = 0;
  std::optional<std::uint64_t> from;
  std::optional<std::uint64_t> to;

  std::int64_t bench_size = 2000;
  int bench_repeats = 10;
};

struct Parsed {
  std::optional<Options> options;  // nothing: `text` is to be shown and `exit_code` returned
  std::string text;
  int exit_code = 0;
};

// Never exits or prints: with many ranks only one may.
Parsed parse(int argc, char** argv);

}  // namespace walks
