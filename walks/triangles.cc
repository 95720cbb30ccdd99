#include <limits>
#include <vector>

#include "cannon.h"
#include "cells.h"
#include "questions.h"

namespace walks {
namespace {

struct Sum {
  unsigned __int128 total = 0;
  std::uint64_t loops = 0;
  std::uint64_t one_way = 0;  // cells that differ from their mirror image
};

// The sum of square(i, j) * mirror(j, i) over a region of rows x cols.
void add_products(const std::uint64_t* square, const std::byte* mirror, std::uint32_t cell,
                  const Region& region, Sum& sum) {
  for (std::int64_t r = 0; r < region.rows(); ++r) {
    for (std::int64_t c = 0; c < region.cols(); ++c) {
      const std::uint64_t entry = get_cell(mirror, cell, c * region.rows() + r);
      if (entry == 0) continue;
      if (region.row0 + r == region.col0 + c) ++sum.loops;
      sum.total += static_cast<unsigned __int128>(square[r * region.cols() + c]) * entry;
    }
  }
}

std::uint64_t one_way(const std::byte* cells, const std::byte* mirror, std::uint32_t cell,
                      const Region& region) {
  std::uint64_t count = 0;
  for (std::int64_t r = 0; r < region.rows(); ++r) {
    for (std::int64_t c = 0; c < region.cols(); ++c) {
      if (get_cell(cells, cell, r * region.cols() + c) !=
          get_cell(mirror, cell, c * region.rows() + r)) {
        ++count;
      }
    }
  }
  return count;
}

}  // namespace

Triangles count_triangles(Team& team, MatrixFile& graph, bool undirected, const Access& access) {
  const std::uint32_t cell = graph.header().cell;
  Sum sum;
  std::vector<std::byte> mirror;
  std::vector<std::byte> cells;
  const auto read = [&](const Region& region, std::vector<std::byte>& into) {
    team.guard(Phase::read, [&] { into.resize(static_cast<std::size_t>(region.cells() * cell)); });
    graph.read(region, into.data(), access.pattern);
  };
  team.begin("counting triangles");
  // The block's 64-bit cells are what the output is here.
  const Plan plan = Plan::fit(team.grid(), graph.n(), {cell, cell, 8},
                              access.pattern == Pattern::shift, access.memory);
  multiply(team, plan, access.pattern, graph, graph, [&](const Region& region, Accumulator& block) {
    read({region.col0, region.col1, region.row0, region.row1}, mirror);
    if (undirected) read(region, cells);
    team.guard(Phase::compute, [&] {
      if (region.empty()) return;
      const auto [square, above] = block.narrow(8, std::numeric_limits<std::uint64_t>::max());
      if (above) {
        throw std::runtime_error("the square of the matrix exceeds 64 bits");
      }
      add_products(reinterpret_cast<const std::uint64_t*>(square), mirror.data(), cell, region,
                   sum);
      if (undirected) sum.one_way += one_way(cells.data(), mirror.data(), cell, region);
    });
  });
  constexpr auto kHalf = 32;
  const auto low_mask = (std::uint64_t{1} << kHalf) - 1;
  // 128 bits in pieces whose sums over all ranks fit 64.
  std::array<std::uint64_t, 6> parts = {
      static_cast<std::uint64_t>(sum.total) & low_mask,
      static_cast<std::uint64_t>(sum.total >> kHalf) & low_mask,
      static_cast<std::uint64_t>(sum.total >> 2 * kHalf) & low_mask,
      static_cast<std::uint64_t>(sum.total >> 3 * kHalf),
      sum.loops,
      sum.one_way};
  MPI_Allreduce(MPI_IN_PLACE, parts.data(), static_cast<int>(parts.size()), MPI_UINT64_T, MPI_SUM,
                team.comm());
  unsigned __int128 total = 0;
  for (const int part : {3, 2, 1, 0}) {
    total = (total << kHalf) + parts[static_cast<std::size_t>(part)];
  }
  if (parts[4] > 0) {
    throw AgreedError(graph.path() + " has " + std::to_string(parts[4]) +
                      " loop(s), whose closed walks are no triangles; remove them with "
                      "walks convert --no-loops");
  }
  if (parts[5] > 0) {
    throw AgreedError(graph.path() + " is not undirected: " + std::to_string(parts[5]) +
                      " cell(s) differ from their mirror image; count without --undirected");
  }
  if (total > std::numeric_limits<std::uint64_t>::max()) {
    throw AgreedError("the number of closed walks exceeds 64 bits");
  }
  Triangles result;
  result.closed_walks = static_cast<std::uint64_t>(total);
  result.triangles = result.closed_walks / (undirected ? 6 : 3);
  return result;
}

}  // namespace walks
