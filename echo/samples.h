// The file of raw samples: docs/formats/echo-samples.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace tare::echo {

enum class Mode : uint32_t { kClosed = 1, kOpen = 2 };

/// received_ns of a request whose reply has not come yet (never in a file), and of one given up.
inline constexpr int64_t kPending = 0;
inline constexpr int64_t kLost = -1;

/// One request. Times are CLOCK_MONOTONIC nanoseconds of the asking machine. In a closed loop
/// intended_ns equals sent_ns. The layout is the file's record.
struct Sample {
  uint32_t client = 0;
  uint32_t sequence = 0;  // counts the client's measured requests from 0
  int64_t intended_ns = 0;
  int64_t sent_ns = 0;
  int64_t received_ns = kPending;

  friend bool operator==(const Sample&, const Sample&) = default;
};
static_assert(sizeof(Sample) == 32);

struct SampleFile {
  Mode mode = Mode::kClosed;
  uint32_t payload_bytes = 0;
  std::vector<std::span<const Sample>> clients;  // one span a client, in the clients' order
};

/// Writes the file beside its final name and renames it, so that a reader never sees half a
/// file. Throws std::runtime_error that names the path and the reason.
void write_samples(const std::filesystem::path& path, const SampleFile& file);

}  // namespace tare::echo
