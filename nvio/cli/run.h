// `nvio run`: the environment for a command, and the end of its store whatever happened to it.
#pragma once

#include <string>
#include <vector>

namespace nvio {

struct RunOptions {
  std::string store;
  std::string capacity;
  std::vector<std::string> settings;  // NAME=VALUE
  std::string statistics;             // job or ranks; empty: none
  std::string statistics_file;        // to write them to, as JSON
  std::vector<std::string> command;
};

// What `--set` may name, with commas between.
std::string names_to_set();

// Runs the command to its end and returns its exit status (128 + signal when it was killed).
// Signals that would end this process go on to it. What a killed job left in its store is written
// to its files.
int run(const RunOptions& options);

}  // namespace nvio
