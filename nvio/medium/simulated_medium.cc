#include "simulated_medium.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace nvio {

int SimulatedMedium::reserve(std::uint64_t size) {
  if (size > capacity_) return ENOSPC;
  const std::uint64_t whole = (size + kLine - 1) / kLine * kLine;
  if (whole > volatile_.size()) {
    volatile_.resize(whole);
    durable_.resize(whole);
  }
  return 0;
}

int SimulatedMedium::write(std::uint64_t offset, const void* data, std::size_t length) {
  if (stopped_) return EIO;
  if (offset > volatile_.size() || length > volatile_.size() - offset) return ENOSPC;
  const auto* bytes = static_cast<const std::byte*>(data);
  for (std::uint64_t at = offset; at < offset + length;) {
    if (lines_written_ == stop_after_) {
      stopped_ = true;
      return EIO;
    }
    const std::uint64_t line = at / kLine;
    const std::uint64_t stop = std::min(offset + length, (line + 1) * kLine);
    std::memcpy(volatile_.data() + at, bytes + (at - offset), stop - at);
    const auto begin = volatile_.begin() + static_cast<std::ptrdiff_t>(line * kLine);
    unflushed_[line].emplace_back(begin, begin + kLine);
    ++lines_written_;
    at = stop;
  }
  return 0;
}

int SimulatedMedium::persist() {
  if (stopped_) return EIO;
  for (const auto& [line, versions] : unflushed_) {
    std::memcpy(durable_.data() + line * kLine, versions.back().data(), kLine);
  }
  unflushed_.clear();
  return 0;
}

int SimulatedMedium::persist_name() {
  if (stopped_) return EIO;
  is_named_ = true;
  return 0;
}

std::vector<std::byte> SimulatedMedium::crash(std::mt19937_64& random) const {
  if (!is_named_ && random() % 2 == 0) return {};
  std::vector<std::byte> left = durable_;
  for (const auto& [line, versions] : unflushed_) {
    const std::uint64_t pick = random() % (versions.size() + 1);
    if (pick == 0) continue;  // never left the cache
    std::memcpy(left.data() + line * kLine, versions[pick - 1].data(), kLine);
  }
  return left;
}

}  // namespace nvio
