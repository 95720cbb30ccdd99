// Reads a trace, which may be any bytes: a torn end is what a kill leaves, all else is refused.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "../cache/view.h"
#include "trace_format.h"

namespace nvio {

struct TracedFile {
  TraceFile facts{};
  std::string path;
  std::string source;  // of its mount: host:/export, /dev/sdb1
};

// One process's trace.
struct Trace {
  std::string problem;  // a sentence, when the bytes are no trace; the rest is then empty
  TraceHeader header{};
  std::map<std::uint16_t, TracedFile> files;
  std::vector<View> views;
  std::vector<TraceCall> calls;  // in the order of comes_before
  bool complete = false;         // the process left MPI in order, and nothing is torn
};

Trace read_trace(std::span<const std::byte> bytes);
Trace read_trace_file(const std::string& path);

}  // namespace nvio
