// What a request and its reply consist of, whatever carries them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tare::echo {

/// The sequence number of the requests that only find out whether a server answers.
inline constexpr uint32_t kProbeSequence = 0xffffffff;

/// A message as the program sees it; `payload` is borrowed from whoever received it.
struct Message {
  uint32_t requester = 0;
  uint32_t sequence = 0;
  uint64_t checksum = 0;
  std::span<const std::byte> payload;
};

/// XXH3-64 of the payload, seeded by requester and sequence, so that an old payload under a new
/// number is found out.
uint64_t checksum_of(uint32_t requester, uint32_t sequence, std::span<const std::byte> payload);

/// Byte-oriented transports put this header before the payload, little-endian:
/// 0 "TARE" | 4 u32 requester | 8 u32 sequence | 12 u32 payload bytes | 16 u64 checksum.
inline constexpr std::size_t kHeaderBytes = 24;

/// Writes the header of a message with `payload_bytes` of payload.
void encode_header(const Message& message, uint32_t payload_bytes,
                   std::span<std::byte, kHeaderBytes> out);

/// The payload length that a header announces; nothing if this is no header of ours.
std::optional<uint32_t> announced_payload(std::span<const std::byte, kHeaderBytes> header);

/// Reads one whole message. Nothing if it is too short, not ours, or longer or shorter than its
/// header says. The checksum is not verified here: that is the requester's business.
std::optional<Message> decode_message(std::span<const std::byte> bytes);

/// Pseudo-random payloads, the same for the same seed; consecutive sequences differ.
class PayloadSource {
 public:
  PayloadSource(uint64_t seed, std::size_t payload_bytes);

  /// Fills `out` (payload_bytes long) with the payload of request `sequence`. Allocates nothing.
  void fill(uint32_t sequence, std::span<std::byte> out) const;

 private:
  std::vector<std::byte> pool_;
};

}  // namespace tare::echo
