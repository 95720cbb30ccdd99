#include "layout.h"

#include <algorithm>

namespace walks {

Layout::Layout(std::int64_t n, std::int64_t tile)
    : n_(n), tile_(tile <= 0 || tile > n ? std::max<std::int64_t>(n, 1) : tile) {}

std::int64_t Layout::position(std::int64_t row, std::int64_t col) const {
  const std::int64_t top = row / tile_ * tile_;
  const std::int64_t left = col / tile_ * tile_;
  const std::int64_t height = std::min(tile_, n_ - top);
  const std::int64_t width = std::min(tile_, n_ - left);
  return top * n_ + height * left + (row - top) * width + (col - left);
}

std::vector<Run> Layout::runs(const Region& region) const {
  std::vector<Run> runs;
  if (region.empty()) return runs;
  for (std::int64_t top = region.row0 / tile_ * tile_; top < region.row1; top += tile_) {
    for (std::int64_t left = region.col0 / tile_ * tile_; left < region.col1; left += tile_) {
      const std::int64_t first_row = std::max(top, region.row0);
      const std::int64_t last_row = std::min(top + tile_, region.row1);
      const std::int64_t first_col = std::max(left, region.col0);
      const std::int64_t last_col = std::min(left + tile_, region.col1);
      for (std::int64_t row = first_row; row < last_row; ++row) {
        runs.push_back({position(row, first_col),
                        (row - region.row0) * region.cols() + (first_col - region.col0),
                        last_col - first_col});
      }
    }
  }
  return runs;
}

std::vector<Extent> join(const std::vector<Run>& runs, std::int64_t most_cells) {
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!extents.empty()) {
      Extent& last = extents.back();
      const Run& before = runs[i - 1];
      const bool adjacent = before.file + before.length == runs[i].file;
      if (adjacent && last.cells + runs[i].length <= most_cells) {
        last.in_place = last.in_place && before.buffer + before.length == runs[i].buffer;
        last.cells += runs[i].length;
        ++last.count;
        continue;
      }
    }
    extents.push_back({i, 1, runs[i].length, true});
  }
  return extents;
}

}  // namespace walks
