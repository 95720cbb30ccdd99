#include "header.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace walks {
namespace {

constexpr std::array<char, 8> kMagic = {'W', 'A', 'L', 'K', 'S', 'M', 'A', 'T'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kSaturated = 1;

// Offsets of the fields, in bytes; all integers are little endian.
enum Field : std::size_t {
  kAtVersion = 8,
  kAtHeaderBytes = 12,
  kAtKind = 16,
  kAtCell = 20,
  kAtVertices = 24,
  kAtTile = 32,
  kAtPower = 40,
  kAtFirstVertex = 48,
  kAtFlags = 52,
  kAtChecksum = 56,
  kAtReserved = 60,  // zero from here to the header's end
};

void put(std::span<std::byte> bytes, std::size_t at, std::size_t width, std::uint64_t value) {
  for (std::size_t i = 0; i < width; ++i) bytes[at + i] = std::byte(value >> (8 * i) & 0xff);
}

std::uint64_t get(std::span<const std::byte> bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
  }
  return value;
}

// CRC-32C (Castagnoli, reflected 0x82f63b78); one header a file, so a bit at a time will do.
std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

}  // namespace

std::array<std::byte, kHeaderBytes> encode(const Header& header) {
  std::array<std::byte, kHeaderBytes> bytes{};
  std::transform(kMagic.begin(), kMagic.end(), bytes.begin(), [](char c) { return std::byte(c); });
  put(bytes, kAtVersion, 4, kVersion);
  put(bytes, kAtHeaderBytes, 4, kHeaderBytes);
  put(bytes, kAtKind, 4, static_cast<std::uint32_t>(header.kind));
  put(bytes, kAtCell, 4, header.cell);
  put(bytes, kAtVertices, 8, header.n);
  put(bytes, kAtTile, 8, header.tile);
  put(bytes, kAtPower, 8, header.power);
  put(bytes, kAtFirstVertex, 4, header.first_vertex);
  put(bytes, kAtFlags, 4, header.saturated ? kSaturated : 0);
  put(bytes, kAtChecksum, 4, crc32c(std::span(bytes).first(kAtChecksum)));
  return bytes;
}

bool looks_like_matrix(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), bytes.begin(),
                    [](char c, std::byte b) { return std::byte(c) == b; });
}

Header decode(std::span<const std::byte> bytes) {
  const auto refuse = [](const std::string& why) -> void { throw std::runtime_error(why); };
  if (!looks_like_matrix(bytes)) refuse("it does not begin with WALKSMAT");
  if (bytes.size() < kHeaderBytes) refuse("it ends within its header");
  const std::uint64_t version = get(bytes, kAtVersion, 4);
  if (version != kVersion) {
    refuse("its format has version " + std::to_string(version) + "; this program reads version 1");
  }
  if (get(bytes, kAtChecksum, 4) != crc32c(bytes.first(kAtChecksum))) {
    refuse("its header's checksum does not match");
  }
  if (get(bytes, kAtHeaderBytes, 4) != kHeaderBytes) refuse("its header is not 4096 bytes long");
  const bool reserved_clear = std::all_of(bytes.begin() + kAtReserved, bytes.begin() + kHeaderBytes,
                                          [](std::byte b) { return b == std::byte{0}; });
  if (!reserved_clear) refuse("its header has bytes set that version 1 leaves zero");

  Header header;
  const std::uint64_t kind = get(bytes, kAtKind, 4);
  if (kind != 1 && kind != 2) refuse("it holds an unknown kind of matrix, " + std::to_string(kind));
  header.kind = static_cast<Kind>(kind);
  header.cell = static_cast<std::uint32_t>(get(bytes, kAtCell, 4));
  if (!is_cell_width(header.cell)) {
    refuse("its cells have " + std::to_string(header.cell) + " bytes, not 1, 2, 4 or 8");
  }
  header.n = get(bytes, kAtVertices, 8);
  if (header.n == 0 || header.n > kMostVertices) {
    refuse("it claims " + std::to_string(header.n) + " vertices");
  }
  header.tile = get(bytes, kAtTile, 8);
  if (header.tile > kMostVertices) refuse("its tiles are impossibly large");
  header.power = get(bytes, kAtPower, 8);
  const std::uint64_t first_vertex = get(bytes, kAtFirstVertex, 4);
  if (first_vertex > 1) refuse("its vertices are numbered from neither 0 nor 1");
  header.first_vertex = static_cast<std::uint32_t>(first_vertex);
  const std::uint64_t flags = get(bytes, kAtFlags, 4);
  if ((flags & ~std::uint64_t{kSaturated}) != 0)
    refuse("it has flags that version 1 does not know");
  header.saturated = (flags & kSaturated) != 0;
  return header;
}

}  // namespace walks
