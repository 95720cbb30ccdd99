#include "grid.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "header.h"
#include "product.h"

namespace walks {
namespace {

// Each block is read or written by calls of less than 2^31 bytes, as MPI counts are ints.
constexpr std::int64_t kLargestBlock = std::int64_t{1} << 30;

// Below this K the s32 results are widened too often for the product to be fast.
constexpr std::int64_t kGoodDepth = 1024;

}  // namespace

Grid Grid::of(int ranks) {
  for (int active = ranks; active > 1; --active) {
    for (int rows = active; rows >= 1; --rows) {
      const int cols = active / rows;
      if (rows * cols == active && rows <= cols && cols <= 4 * rows) return {rows, cols};
    }
  }
  return {1, 1};
}

int Grid::steps() const { return std::lcm(rows, cols); }

Strips::Strips(std::int64_t n, int ranks, std::int64_t row_bytes, std::int64_t memory)
    : n_(n), ranks_(ranks) {
  const std::int64_t most_rows =
      std::max<std::int64_t>(1, std::min(memory, kLargestBlock) / row_bytes);
  const std::int64_t share = (n + ranks - 1) / ranks;
  rounds_ = (share + most_rows - 1) / most_rows;
}

Region Strips::of(int rank, std::int64_t round) const {
  const std::int64_t strip = round * ranks_ + rank;
  return {cut(n_, rounds_ * ranks_, strip), cut(n_, rounds_ * ranks_, strip + 1), 0, n_};
}

Region Plan::left(std::int64_t d, int i, std::int64_t panel) const {
  const std::int64_t strip = d * grid.rows + i;
  return {cut(n, down * grid.rows, strip), cut(n, down * grid.rows, strip + 1),
          cut(n, panels(), panel), cut(n, panels(), panel + 1)};
}

Region Plan::right(std::int64_t panel, std::int64_t a, int j) const {
  const std::int64_t strip = a * grid.cols + j;
  return {cut(n, panels(), panel), cut(n, panels(), panel + 1), cut(n, across * grid.cols, strip),
          cut(n, across * grid.cols, strip + 1)};
}

Region Plan::out(std::int64_t d, std::int64_t a, int i, int j) const {
  const Region rows = left(d, i, 0);
  const Region cols = right(0, a, j);
  return {rows.row0, rows.row1, cols.col0, cols.col1};
}

std::int64_t Plan::working_set(CellWidths widths, bool shift) const {
  const auto part = [this](std::int64_t parts) { return (n + parts - 1) / parts; };
  const std::int64_t rows = part(down * grid.rows);
  const std::int64_t cols = part(across * grid.cols);
  const std::int64_t k = part(panels());
  const auto planes = [](std::uint32_t width) { return planes_for(largest(width)); };
  // Of operands their cells and planes, the right one's packed, too. Of C the s32 sums, the u64
  // sums, and the cells on their way to the file.
  std::int64_t bytes = rows * k * (widths.left + planes(widths.left)) +
                       k * cols * (widths.right + 2 * planes(widths.right)) +
                       rows * cols * (4 + 8 + widths.out);
  if (shift) {
    bytes += rows * k * widths.left * (grid.steps() / grid.cols) +
             k * cols * widths.right * (grid.steps() / grid.rows);
  }
  return bytes;
}

Plan Plan::fit(Grid grid, std::int64_t n, CellWidths widths, bool shift, std::int64_t memory) {
  Plan plan{grid, n, 1, 1, 1};
  const auto part = [n](std::int64_t parts) { return (n + parts - 1) / parts; };
  for (;;) {
    const std::int64_t rows = part(plan.down * grid.rows);
    const std::int64_t cols = part(plan.across * grid.cols);
    const std::int64_t k = part(plan.panels());
    const std::int64_t largest_block = std::max(
        {rows * k * widths.left, k * cols * widths.right, rows * cols * std::int64_t{widths.out}});
    if (plan.working_set(widths, shift) <= memory && largest_block <= kLargestBlock) return plan;
    if (std::max({rows, cols, k}) == 1) {
      throw std::runtime_error("no product of " + std::to_string(n) + " x " + std::to_string(n) +
                               " cells fits a working set of " + std::to_string(memory) +
                               " bytes a rank; raise --memory");
    }
    // Cutting K costs no I/O; cutting C reads an operand once more for each cut.
    if (k > kGoodDepth || (k >= rows && k >= cols)) {
      plan.depth *= 2;
    } else if (rows >= cols) {
      plan.down *= 2;
    } else {
      plan.across *= 2;
    }
  }
}

}  // namespace walks
