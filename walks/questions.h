// What a graph's powers tell: walks between two vertices, shortest lengths, triangles.
#pragma once

#include <cstdint>
#include <string>

#include "grid.h"
#include "matrix_file.h"
#include "power.h"
#include "team.h"

namespace walks {

// Collective. The entry (from, to) of matrix^exponent, rows and columns counted from 0. For an
// exponent above 1 a row vector is multiplied by the matrix, exponent - 1 times: n * n operations
// each, no product of matrices. AgreedError if the number exceeds 64 bits on the way.
std::uint64_t walks_between(Team& team, MatrixFile& matrix, std::uint64_t exponent,
                            std::int64_t from, std::int64_t to, const Access& access);

struct LengthsSummary {
  std::uint64_t connected = 0;  // ordered pairs of vertices, not of one vertex, with a walk
  std::uint64_t longest = 0;    // of the shortest walks between two different vertices
  std::uint64_t products = 0;   // that it took
  bool complete = false;        // no pair can have a longer shortest walk than found
};

// Collective. Writes to `output` the matrix of shortest walk lengths: cell (i, j) is the smallest
// k >= 1 for which the k-th power has a non-zero entry (i, j), or 0 if there is none up to
// `longest` (0: until no power finds a new pair). The diagonal so holds the shortest closed walks.
// Powers are computed with entries cut to 1, which keeps exactly what is asked.
LengthsSummary shortest_lengths(Team& team, MatrixFile& graph, std::uint64_t longest,
                                std::uint32_t cell, std::uint64_t tile, const Access& access,
                                const std::string& output);

// The pieces in which that is done.
[[nodiscard]] Plan plan_of_lengths(Grid grid, const Header& graph, std::uint32_t cell,
                                   const Access& access);

struct Triangles {
  std::uint64_t closed_walks = 0;  // trace of the third power
  std::uint64_t triangles = 0;     // closed walks / 3, or / 6 in an undirected graph
};

// Collective. trace(A^3) is the sum of A^2(i, j) A(j, i), so one product suffices and nothing is
// written. AgreedError if the graph has loops (a loop's closed walks are no triangles), or is to
// be undirected and is not symmetric.
Triangles count_triangles(Team& team, MatrixFile& graph, bool undirected, const Access& access);

}  // namespace walks
