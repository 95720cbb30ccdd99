#pragma once

#include <cstdint>

namespace nvio {

// Bytes of a file side by side.
struct FileRun {
  std::uint64_t offset, length;
  std::uint64_t end() const { return offset + length; }
  bool operator==(const FileRun&) const = default;
};

}  // namespace nvio
