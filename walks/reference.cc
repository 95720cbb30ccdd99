#include "reference.h"

#include <algorithm>

#include "cells.h"
#include "grid.h"

namespace walks {

void SparseGraph::add(std::int64_t from, std::int64_t to, std::uint64_t weight) {
  rows_[static_cast<std::size_t>(from)].push_back({to, weight});
}

std::vector<std::uint64_t> SparseGraph::row_of_power(std::int64_t from, std::uint64_t exponent,
                                                     std::uint64_t cap) const {
  std::vector<std::uint64_t> vector(rows_.size());
  vector[static_cast<std::size_t>(from)] = 1;
  for (std::uint64_t step = 0; step < exponent; ++step) {
    std::vector<std::uint64_t> next(rows_.size());
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (vector[row] == 0) continue;
      for (const Entry& entry : rows_[row]) {
        std::uint64_t& sum = next[static_cast<std::size_t>(entry.to)];
        // Below 2^128: each factor and the sum are below 2^64.
        const auto exact = static_cast<unsigned __int128>(vector[row]) * entry.weight + sum;
        sum = exact > cap ? cap : static_cast<std::uint64_t>(exact);
      }
    }
    vector = std::move(next);
  }
  return vector;
}

std::vector<std::uint64_t> SparseGraph::lengths_from(std::int64_t from,
                                                     std::uint64_t longest) const {
  std::vector<std::uint64_t> lengths(rows_.size());
  std::vector<std::int64_t> frontier = {from};
  for (std::uint64_t length = 1; length <= longest && !frontier.empty(); ++length) {
    std::vector<std::int64_t> next;
    for (const std::int64_t vertex : frontier) {
      for (const Entry& entry : rows_[static_cast<std::size_t>(vertex)]) {
        std::uint64_t& known = lengths[static_cast<std::size_t>(entry.to)];
        if (known != 0) continue;
        known = length;
        next.push_back(entry.to);
      }
    }
    frontier = std::move(next);
  }
  return lengths;
}

namespace {

// Every rank reads the whole graph by stretches; that is not collective.
SparseGraph load(MatrixFile& graph, std::int64_t memory) {
  const std::int64_t n = graph.n();
  const std::uint32_t cell = graph.header().cell;
  SparseGraph edges(n);
  const std::int64_t rows =
      std::clamp<std::int64_t>(std::min(memory, std::int64_t{64} << 20) / (n * cell), 1, n);
  std::vector<std::byte> cells(static_cast<std::size_t>(rows * n * cell));
  for (std::int64_t row = 0; row < n; row += rows) {
    const Region region{row, std::min(n, row + rows), 0, n};
    graph.read(region, cells.data(), Pattern::block);
    for (std::int64_t i = 0; i < region.cells(); ++i) {
      const std::uint64_t weight = get_cell(cells.data(), cell, i);
      if (weight != 0) edges.add(row + i / n, i % n, weight);
    }
  }
  return edges;
}

void compare(const std::vector<std::uint64_t>& expected, const std::byte* cells, std::uint32_t cell,
             std::int64_t row, Verdict& verdict) {
  ++verdict.rows;
  for (std::size_t col = 0; col < expected.size(); ++col) {
    const std::uint64_t found = get_cell(cells, cell, static_cast<std::int64_t>(col));
    if (found == expected[col]) continue;
    if (verdict.wrong++ > 0) continue;
    verdict.row = static_cast<std::uint64_t>(row);
    verdict.col = col;
    verdict.found = found;
    verdict.expected = expected[col];
  }
}

// The ranks' verdicts as one.
Verdict gather(const Team& team, Verdict mine) {
  const auto none = static_cast<std::uint64_t>(team.size());
  const std::uint64_t candidate = mine.wrong > 0 ? static_cast<std::uint64_t>(team.rank()) : none;
  std::uint64_t first = 0;
  MPI_Allreduce(&candidate, &first, 1, MPI_UINT64_T, MPI_MIN, team.comm());
  Verdict all = mine;
  if (first < none) {
    std::array<std::uint64_t, 4> cell = {mine.row, mine.col, mine.found, mine.expected};
    MPI_Bcast(cell.data(), 4, MPI_UINT64_T, static_cast<int>(first), team.comm());
    all = {0, 0, cell[0], cell[1], cell[2], cell[3]};
  }
  std::array<std::uint64_t, 2> counts = {mine.rows, mine.wrong};
  MPI_Allreduce(MPI_IN_PLACE, counts.data(), 2, MPI_UINT64_T, MPI_SUM, team.comm());
  all.rows = counts[0];
  all.wrong = counts[1];
  return all;
}

}  // namespace

Verdict verify(Team& team, MatrixFile& graph, MatrixFile& result, std::uint64_t rows,
               const Access& access) {
  const Header& header = result.header();
  const Header& of = graph.header();
  if (of.kind != Kind::kWalks || of.power == 0) {
    throw AgreedError(graph.path() +
                      " holds lengths, not a graph: the graph is named first, then the result");
  }
  if (header.n != of.n) {
    throw AgreedError(result.path() + " has " + std::to_string(header.n) + " vertices, " +
                      graph.path() + " has " + std::to_string(of.n));
  }
  const bool lengths = header.kind == Kind::kLengths;
  if (lengths && of.power != 1) {
    throw AgreedError(graph.path() + " holds power " + std::to_string(of.power) + ", and " +
                      result.path() + " lengths, which are those of a graph");
  }
  if (!lengths && header.power % of.power != 0) {
    throw AgreedError(result.path() + " holds power " + std::to_string(header.power) + ", which " +
                      graph.path() + ", power " + std::to_string(of.power) + ", does not divide");
  }
  const std::uint64_t exponent = lengths ? 0 : header.power / of.power;
  const std::uint64_t longest = header.power == 0 ? ~std::uint64_t{0} : header.power;
  const std::uint64_t cap = header.saturated ? largest(header.cell) : ~std::uint64_t{0};
  const std::int64_t n = result.n();
  const auto wanted = static_cast<std::int64_t>(rows == 0 ? header.n : std::min(header.n, rows));
  team.begin("verifying " + result.path());
  graph.drop_view();
  result.drop_view();
  Verdict verdict;
  team.guard(Phase::compute, [&] {
    const SparseGraph edges = load(graph, access.memory);
    std::vector<std::byte> cells(static_cast<std::size_t>(n * header.cell));
    for (std::int64_t i = team.rank(); i < wanted; i += team.size()) {
      const std::int64_t row = cut(n, wanted, i);
      result.read({row, row + 1, 0, n}, cells.data(), Pattern::block);
      compare(lengths ? edges.lengths_from(row, longest) : edges.row_of_power(row, exponent, cap),
              cells.data(), header.cell, row, verdict);
      team.progress(static_cast<double>(i) / static_cast<double>(wanted));
    }
  });
  team.agree();
  return gather(team, verdict);
}

}  // namespace walks
