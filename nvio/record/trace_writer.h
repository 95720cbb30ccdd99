// Writes one process's trace: calls are gathered in one block of memory and written when it is
// full, so that a kill loses the last block at most. Not locked.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../cache/view.h"
#include "trace_format.h"

namespace nvio {

class TraceWriter {
 public:
  // `start`: ns of the monotonic clock. Once the file cannot be written, that is said, and nothing
  // more is taken.
  TraceWriter(const std::string& path, std::uint64_t start, std::uint32_t process,
              const std::string& host);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void add_file(TraceFile file, const std::string& path, const std::string& source);
  // The next view; `same`: one with the same tiles, or this one.
  void add_view(const View& view, std::uint32_t same, bool has_runs);
  void add(const TraceCall& call);
  void flush();

 private:
  void close();
  // Of what a full disk cut short, nothing later may look whole.
  void give_up();
  void append(const void* data, std::size_t length);
  void write_block(TraceBlockType type, const void* payload, std::size_t length);

  std::string path_;
  int fd_ = -1;
  off_t position_ = 0;
  std::uint32_t sequence_ = 0;
  std::vector<TraceCall> calls_;
};

}  // namespace nvio
