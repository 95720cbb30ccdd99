#include "random_graph.h"

#include <cmath>
#include <utility>

namespace walks {
namespace {

// SplitMix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// 2014), used as a keyed hash of the edge: a counter-based generator, with no state to carry.
std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ULL;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
  return z ^ z >> 31;
}

}  // namespace

RandomGraph::RandomGraph(double probability, std::uint64_t seed, bool undirected, bool loops)
    : threshold_(probability < 1 ? static_cast<std::uint64_t>(std::ldexp(probability, 64)) : 0),
      always_(probability >= 1),
      seed_(mix(seed)),
      undirected_(undirected),
      loops_(loops) {}

bool RandomGraph::edge(std::uint64_t from, std::uint64_t to) const {
  if (from == to && !loops_) return false;
  if (always_) return true;
  if (undirected_ && from > to) std::swap(from, to);
  return mix(mix(seed_ ^ from) ^ to) < threshold_;
}

void RandomGraph::fill(const Region& region, std::uint8_t* cells) const {
#pragma omp parallel for schedule(static)
  for (std::int64_t row = region.row0; row < region.row1; ++row) {
    std::uint8_t* out = cells + (row - region.row0) * region.cols();
    for (std::int64_t col = region.col0; col < region.col1; ++col) {
      *out++ = edge(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(col)) ? 1 : 0;
    }
  }
}

}  // namespace walks
