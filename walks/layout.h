// Where the cells of a square matrix lie in its file. Pure arithmetic, no I/O.
#pragma once

#include <cstdint>
#include <vector>

namespace walks {

// A rectangle of cells, half open: rows [row0, row1), columns [col0, col1), counted from 0.
struct Region {
  std::int64_t row0 = 0;
  std::int64_t row1 = 0;
  std::int64_t col0 = 0;
  std::int64_t col1 = 0;

  [[nodiscard]] std::int64_t rows() const { return row1 - row0; }
  [[nodiscard]] std::int64_t cols() const { return col1 - col0; }
  [[nodiscard]] std::int64_t cells() const { return rows() * cols(); }
  [[nodiscard]] bool empty() const { return row1 <= row0 || col1 <= col0; }
};

// Cells that follow one another both in the file and in the region's own row-major buffer.
struct Run {
  std::int64_t file = 0;    // index of the first cell, in file order
  std::int64_t buffer = 0;  // index of the first cell, in the region's row-major order
  std::int64_t length = 0;  // cells
};

// Row-major order over the whole matrix (tile == 0), or over square tiles that follow one another
// in row-major order themselves. Tiles at the right and lower edge are cut off, not padded, so
// that either order has exactly n * n cells.
class Layout {
 public:
  Layout(std::int64_t n, std::int64_t tile);

  [[nodiscard]] bool row_major() const { return tile_ >= n_; }

  // Index of a cell in file order.
  [[nodiscard]] std::int64_t position(std::int64_t row, std::int64_t col) const;

  // The region's cells as runs, ascending in file order; one run for each row of each tile.
  [[nodiscard]] std::vector<Run> runs(const Region& region) const;

 private:
  std::int64_t n_;
  std::int64_t tile_;
};

// Runs that follow one another in the file, taken together: [first, first + count) of the runs.
struct Extent {
  std::size_t first = 0;
  std::size_t count = 0;
  std::int64_t cells = 0;
  bool in_place = false;  // they follow one another in the buffer too
};

// Joins neighbouring runs into extents of at most `most_cells` (a longer single run stays whole).
[[nodiscard]] std::vector<Extent> join(const std::vector<Run>& runs, std::int64_t most_cells);

}  // namespace walks
