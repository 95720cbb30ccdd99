// Messages out of a byte stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "message.h"

namespace tare::echo {

/// Collects a stream until it holds whole messages.
class Assembler {
 public:
  explicit Assembler(std::size_t message_bytes) : buffer_(message_bytes) {}

  /// Where the next bytes are to be received.
  std::span<std::byte> room() { return std::span(buffer_).subspan(filled_); }

  /// Notes that `length` bytes came, and calls `use` with each message now whole. False: the
  /// stream is not ours, or announces more than `max_payload`; nothing after that can be read.
  template <typename Use>
  bool add(std::size_t length, uint32_t max_payload, Use&& use) {
    filled_ += length;
    std::span<const std::byte> rest = std::span(buffer_).first(filled_);
    std::size_t wanted = 0;
    while (rest.size() >= kHeaderBytes) {
      const auto payload = announced_payload(rest.first<kHeaderBytes>());
      if (!payload || *payload > max_payload) return false;
      wanted = kHeaderBytes + *payload;
      if (rest.size() < wanted) break;
      use(rest.first(wanted));
      rest = rest.subspan(wanted);
    }
    std::copy(rest.begin(), rest.end(), buffer_.begin());
    filled_ = rest.size();
    // A message longer than any before it: the only time that the buffer grows.
    if (buffer_.size() < wanted) buffer_.resize(wanted);
    return true;
  }

 private:
  std::vector<std::byte> buffer_;
  std::size_t filled_ = 0;
};

}  // namespace tare::echo
