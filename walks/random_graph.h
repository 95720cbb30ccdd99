// A random graph whose every edge depends on (seed, from, to) alone, so that any number of
// processes generates the same one, each its own part.
#pragma once

#include <cstdint>

#include "layout.h"

namespace walks {

class RandomGraph {
 public:
  // `probability` of each edge, 0 to 1. Undirected graphs have (i, j) exactly when (j, i).
  RandomGraph(double probability, std::uint64_t seed, bool undirected, bool loops);

  [[nodiscard]] bool edge(std::uint64_t from, std::uint64_t to) const;

  // Fills a row-major buffer of 1-byte cells with the region's 0s and 1s.
  void fill(const Region& region, std::uint8_t* cells) const;

 private:
  std::uint64_t threshold_;
  bool always_;
  std::uint64_t seed_;
  bool undirected_;
  bool loops_;
};

}  // namespace walks
