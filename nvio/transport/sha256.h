// SHA-256 and HMAC-SHA256 (FIPS 180-4, RFC 2104), for the proof that both ends of a connection know
// the job's secret. Written out, because a cryptographic library in the program's process might
// replace the program's own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace nvio {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::span<const std::uint8_t> data);
Digest hmac_sha256(std::span<const std::uint8_t> key, std::span<const std::uint8_t> data);

// Takes the same time wherever they differ.
bool equal_digests(const Digest& a, const Digest& b);

}  // namespace nvio
