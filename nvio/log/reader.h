// Reads a redo log. Pure but for the bytes it is handed, piece by piece: a log may be longer than
// memory is wide. No trust in a single byte of the input.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "format.h"
#include "writer.h"

namespace nvio {

struct ParsedLog {
  bool usable = false;         // false: `why` says what is wrong, nothing else is set but this:
  bool never_started = false;  // its first superblock was still on the way: no sync needed it yet
  std::string why;
  LogState state = LogState::live;
  std::uint64_t epoch = 0;
  FileIdentity file;
  std::uint64_t syncs = 0;       // completed ones
  std::uint64_t extents = 0;     // of theirs
  std::uint64_t file_size = 0;   // at the last completed sync; meaningless when syncs == 0
  std::uint64_t bytes = 0;       // payload of the extents
  std::uint64_t unfinished = 0;  // whole records after the last commit: a sync that never ended
};

class LogReader {
 public:
  // Fills the span with the bytes at an offset; false when it cannot.
  using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte> room)>;
  // What `visit` does with bytes of the file at an offset: a piece of an extent.
  using Visit = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;

  LogReader(std::uint64_t size, ReadAt read) : size_(size), read_(std::move(read)) {}
  explicit LogReader(std::span<const std::byte> bytes);

  // A torn tail is no error: it is a sync that never ended. Nor is one that cannot be read.
  ParsedLog parse();
  // Redoes all completed syncs, in order, of what `parse` returned. False when the log is not what
  // it was then, or cannot be read.
  bool replay(const ParsedLog& log, const Visit& visit);
  bool failed() const { return failed_; }

 private:
  // Bytes of the log, good until the next call; fewer than asked for at its end, and none that
  // cannot be read. `length` is kWindow at most.
  std::span<const std::byte> look(std::uint64_t at, std::size_t length);
  bool is_untouched_but_for_copy_1();
  template <typename Type>
  bool take(std::uint64_t at, Type& value);
  // The record at `at`, whole and the next; false when there is none.
  bool next(std::uint64_t at, const ParsedLog& log, std::uint64_t sequence, std::uint32_t chain,
            Record& record);

  std::uint64_t size_;
  ReadAt read_;
  bool failed_ = false;
  std::uint64_t from_ = 0;  // of `window_` in the log
  std::vector<std::byte> window_;
};

}  // namespace nvio
