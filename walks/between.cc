#include <algorithm>
#include <vector>

#include "cells.h"
#include "grid.h"
#include "questions.h"

namespace walks {
namespace {

// One entry of a row vector times the matrix: sums[c] += weight * row[c], or throws.
void add_row(std::uint64_t weight, const std::byte* row, std::uint32_t cell,
             std::vector<std::uint64_t>& sums) {
  for (std::size_t col = 0; col < sums.size(); ++col) {
    const std::uint64_t entry = get_cell(row, cell, static_cast<std::int64_t>(col));
    std::uint64_t term = 0;
    if (__builtin_mul_overflow(weight, entry, &term) ||
        __builtin_add_overflow(sums[col], term, &sums[col])) {
      throw std::runtime_error("the number of walks exceeds 64 bits");
    }
  }
}

}  // namespace

std::uint64_t walks_between(Team& team, MatrixFile& matrix, std::uint64_t exponent,
                            std::int64_t from, std::int64_t to, const Access& access) {
  const std::int64_t n = matrix.n();
  const std::uint32_t cell = matrix.header().cell;
  matrix.drop_view();
  std::vector<std::byte> cells;
  const auto read = [&](const Region& region) {
    team.guard(Phase::read, [&] { cells.resize(static_cast<std::size_t>(region.cells() * cell)); });
    matrix.read(region, cells.data(), Pattern::block);
  };
  if (exponent == 1) {
    read({from, from + 1, to, to + 1});
    team.agree();
    return get_cell(cells.data(), cell, 0);
  }
  // Each rank computes the same columns of every vector, and needs only those of the matrix.
  const std::int64_t col0 = cut(n, team.size(), team.rank());
  const std::int64_t col1 = cut(n, team.size(), team.rank() + 1);
  std::vector<int> counts;
  std::vector<int> places;
  for (int rank = 0; rank < team.size(); ++rank) {
    places.push_back(static_cast<int>(cut(n, team.size(), rank)));
    counts.push_back(static_cast<int>(cut(n, team.size(), rank + 1)) - places.back());
  }
  const std::int64_t width = std::max<std::int64_t>(1, (col1 - col0) * cell);
  const std::int64_t rows =
      std::clamp<std::int64_t>(std::min(access.memory, std::int64_t{64} << 20) / width, 1, n);
  std::vector<std::uint64_t> vector;
  std::vector<std::uint64_t> sums;
  team.guard(Phase::compute, [&] {
    vector.resize(static_cast<std::size_t>(n));
    vector[static_cast<std::size_t>(from)] = 1;
    sums.resize(static_cast<std::size_t>(col1 - col0));
  });
  team.agree();
  team.begin("walks of length " + std::to_string(power_of(matrix, exponent)));
  for (std::uint64_t step = 0; step < exponent; ++step) {
    std::fill(sums.begin(), sums.end(), 0);
    for (std::int64_t row = 0; row < n; row += rows) {
      const Region region{row, std::min(n, row + rows), col0, col1};
      const auto begin = vector.begin() + region.row0;
      const auto end = vector.begin() + region.row1;
      if (region.empty() || std::all_of(begin, end, [](auto v) { return v == 0; })) continue;
      read(region);
      team.guard(Phase::compute, [&] {
        for (std::int64_t r = region.row0; r < region.row1; ++r) {
          const std::uint64_t weight = vector[static_cast<std::size_t>(r)];
          if (weight == 0) continue;
          add_row(weight, cells.data() + (r - region.row0) * region.cols() * cell, cell, sums);
        }
      });
    }
    team.agree();
    MPI_Allgatherv(sums.data(), static_cast<int>(sums.size()), MPI_UINT64_T, vector.data(),
                   counts.data(), places.data(), MPI_UINT64_T, team.comm());
    team.progress(static_cast<double>(step + 1) / static_cast<double>(exponent));
  }
  return vector[static_cast<std::size_t>(to)];
}

}  // namespace walks
