// Slow and obvious: what the fast path is checked against. Shares no code with it but the reading
// of files: a row of A^p is a row vector times A, p times, on a list of edges.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "matrix_file.h"
#include "power.h"
#include "team.h"

namespace walks {

class SparseGraph {
 public:
  explicit SparseGraph(std::int64_t n) : rows_(static_cast<std::size_t>(n)) {}
  void add(std::int64_t from, std::int64_t to, std::uint64_t weight);

  // Row `from` of the power, each entry the smaller of its true value and `cap`.
  [[nodiscard]] std::vector<std::uint64_t> row_of_power(std::int64_t from, std::uint64_t exponent,
                                                        std::uint64_t cap) const;

  // The smallest k from 1 to `longest` with a walk of length k from `from` to each vertex, 0 if
  // there is none: breadth-first search.
  [[nodiscard]] std::vector<std::uint64_t> lengths_from(std::int64_t from,
                                                        std::uint64_t longest) const;

 private:
  struct Entry {
    std::int64_t to;
    std::uint64_t weight;
  };
  std::vector<std::vector<Entry>> rows_;
};

struct Verdict {
  std::uint64_t rows = 0;   // compared
  std::uint64_t wrong = 0;  // cells
  std::uint64_t row = 0;    // the first wrong cell, counted from 0, and what it should be
  std::uint64_t col = 0;
  std::uint64_t found = 0;
  std::uint64_t expected = 0;
};

// Collective. Compares `result` (a power of the graph, or its matrix of lengths) cell by cell with
// the reference, in `rows` rows spread over the matrix (0: all). Holds the graph's edges in memory,
// 16 bytes each, on every rank.
Verdict verify(Team& team, MatrixFile& graph, MatrixFile& result, std::uint64_t rows,
               const Access& access);

}  // namespace walks
