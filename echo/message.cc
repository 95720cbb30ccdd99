#include "message.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

namespace tare::echo {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the encodings below copy little-endian integers as they are");

constexpr char kMagic[4] = {'T', 'A', 'R', 'E'};

// Payloads are windows into one random pool. Neighbouring sequences start this far apart, and
// the starts repeat only after kWindows requests.
constexpr std::size_t kStep = 8;
constexpr std::size_t kWindows = 512;

template <typename T>
void put(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof value);
}

template <typename T>
T get(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

}  // namespace

uint64_t checksum_of(uint32_t requester, uint32_t sequence, std::span<const std::byte> payload) {
  const uint64_t seed = uint64_t{requester} << 32 | sequence;
  return XXH3_64bits_withSeed(payload.data(), payload.size(), seed);
}

void encode_header(const Message& message, uint32_t payload_bytes,
                   std::span<std::byte, kHeaderBytes> out) {
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  put(message.requester, &out[4]);
  put(message.sequence, &out[8]);
  put(payload_bytes, &out[12]);
  put(message.checksum, &out[16]);
}

std::optional<uint32_t> announced_payload(std::span<const std::byte, kHeaderBytes> header) {
  if (std::memcmp(header.data(), kMagic, sizeof kMagic) != 0) return std::nullopt;
  return get<uint32_t>(&header[12]);
}

std::optional<Message> decode_message(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  const auto payload_bytes = announced_payload(bytes.first<kHeaderBytes>());
  const auto payload = bytes.subspan(kHeaderBytes);
  if (!payload_bytes || *payload_bytes != payload.size()) return std::nullopt;
  return Message{.requester = get<uint32_t>(&bytes[4]),
                 .sequence = get<uint32_t>(&bytes[8]),
                 .checksum = get<uint64_t>(&bytes[16]),
                 .payload = payload};
}

PayloadSource::PayloadSource(uint64_t seed, std::size_t payload_bytes)
    : pool_(payload_bytes + kStep * kWindows) {
  std::mt19937_64 random(seed);
  for (std::byte& b : pool_) b = static_cast<std::byte>(random());
}

void PayloadSource::fill(uint32_t sequence, std::span<std::byte> out) const {
  const std::size_t start = sequence % kWindows * kStep;
  std::copy_n(pool_.begin() + static_cast<std::ptrdiff_t>(start), out.size(), out.begin());
}

}  // namespace tare::echo
