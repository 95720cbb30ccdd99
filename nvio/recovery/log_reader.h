// Reads a redo log's bytes. Pure: no files, no trust in a single byte of the input.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "log_format.h"
#include "log_writer.h"

namespace nvio {

// A step of the redo: bytes to write. `data` points into the bytes that were read.
struct RedoStep {
  std::uint64_t offset = 0;
  std::span<const std::byte> data;
};

struct ParsedLog {
  bool usable = false;         // false: `why` says what is wrong, nothing else is set but this:
  bool never_started = false;  // its first superblock was still on the way: no sync needed it yet
  std::string why;
  LogState state = LogState::live;
  std::uint64_t epoch = 0;
  FileIdentity file;
  std::vector<RedoStep> steps;  // of all completed syncs, in order
  std::uint64_t syncs = 0;
  std::uint64_t file_size = 0;   // at the last completed sync; meaningless when syncs == 0
  std::uint64_t bytes = 0;       // payload in `steps`
  std::uint64_t unfinished = 0;  // whole records after the last commit: a sync that never ended
};

// A torn tail is no error: it is a sync that never ended.
ParsedLog read_log(std::span<const std::byte> bytes);

}  // namespace nvio
