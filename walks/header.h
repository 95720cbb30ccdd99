// The header of a walks matrix file: docs/formats/walks-matrix.md is its specification.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace walks {

inline constexpr std::size_t kHeaderBytes = 4096;

enum class Kind : std::uint32_t {
  kWalks = 1,    // cell (i, j) counts the walks of length `power` from i to j
  kLengths = 2,  // cell (i, j) is the length of the shortest walk from i to j, 0 if there is none
};

struct Header {
  Kind kind = Kind::kWalks;
  std::uint64_t n = 0;     // vertices; the matrix has n * n cells
  std::uint32_t cell = 1;  // bytes a cell: 1, 2, 4 or 8
  std::uint64_t tile = 0;  // 0: row-major; otherwise the side of a tile
  // Of the graph's adjacency matrix; for lengths: the longest looked for, 0 if all were found.
  std::uint64_t power = 1;
  std::uint32_t first_vertex = 1;  // the number that users give to row 0
  bool saturated = false;          // a cell at its maximum may stand for something larger
};

// The largest n: offsets stay below 2^63 bytes and a row's length within an MPI count.
inline constexpr std::uint64_t kMostVertices = (std::uint64_t{1} << 30) - 1;

[[nodiscard]] std::array<std::byte, kHeaderBytes> encode(const Header& header);

// Throws std::runtime_error with a sentence that says what is wrong with the bytes.
[[nodiscard]] Header decode(std::span<const std::byte> bytes);

// Whether the bytes begin like a walks matrix; says nothing about the rest.
[[nodiscard]] bool looks_like_matrix(std::span<const std::byte> bytes);

[[nodiscard]] constexpr bool is_cell_width(std::uint64_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

// The largest value that a cell of this many bytes holds.
[[nodiscard]] constexpr std::uint64_t largest(std::uint32_t cell) {
  return ~std::uint64_t{0} >> (64 - 8 * cell);
}

}  // namespace walks
