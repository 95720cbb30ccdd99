// Who computes what: ranks on a grid, and the panels that a product is cut into. Pure arithmetic.
#pragma once

#include <cstdint>

#include "layout.h"

namespace walks {

// rows x cols ranks work, in row-major order; the ranks after them are idle.
//
// The most nearly square pair of factors of the number of ranks, no more than four times as wide
// as tall; if it has none (11 = 1 x 11), that of the next smaller number (2 x 5, one rank idle).
struct Grid {
  int rows = 1;
  int cols = 1;

  [[nodiscard]] static Grid of(int ranks);
  [[nodiscard]] int active() const { return rows * cols; }
  // Cannon's steps: on a square grid its side, else lcm(rows, cols) (generalised Cannon).
  [[nodiscard]] int steps() const;
};

// The first index of part `part` when n things are cut into `parts` parts of nearly equal size.
[[nodiscard]] constexpr std::int64_t cut(std::int64_t n, std::int64_t parts, std::int64_t part) {
  return static_cast<std::int64_t>(static_cast<__int128>(n) * part / parts);
}

// The n rows of a matrix as strips, so many rounds of one strip for each rank (collective I/O needs
// equal numbers), that a strip has at most `memory` bytes and less than an MPI count can name.
class Strips {
 public:
  Strips(std::int64_t n, int ranks, std::int64_t row_bytes, std::int64_t memory);
  [[nodiscard]] std::int64_t rounds() const { return rounds_; }
  [[nodiscard]] Region of(int rank, std::int64_t round) const;

 private:
  std::int64_t n_;
  int ranks_;
  std::int64_t rounds_;
};

struct CellWidths {
  std::uint32_t left = 1;
  std::uint32_t right = 1;
  std::uint32_t out = 1;
};

// A product of n x n matrices in pieces whose working set fits: C is computed in down * across
// tiles one after another, each tile by all ranks together; K in `depth` parts of steps() panels.
// Rank (i, j)'s share of tile (d, a) is strip d * grid.rows + i of rows and a * grid.cols + j of
// columns.
struct Plan {
  Grid grid;
  std::int64_t n = 0;
  std::int64_t down = 1;
  std::int64_t across = 1;
  std::int64_t depth = 1;

  [[nodiscard]] Region left(std::int64_t d, int i, std::int64_t panel) const;
  [[nodiscard]] Region right(std::int64_t panel, std::int64_t a, int j) const;
  [[nodiscard]] Region out(std::int64_t d, std::int64_t a, int i, int j) const;
  [[nodiscard]] std::int64_t panels() const { return depth * grid.steps(); }

  // Bytes that a rank needs at once; `shift` also holds its share of both operands.
  [[nodiscard]] std::int64_t working_set(CellWidths widths, bool shift) const;

  // The fewest pieces that fit `memory` bytes a rank. Throws std::runtime_error if none do.
  [[nodiscard]] static Plan fit(Grid grid, std::int64_t n, CellWidths widths, bool shift,
                                std::int64_t memory);
};

}  // namespace walks
