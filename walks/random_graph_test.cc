#include "random_graph.h"

#include <gtest/gtest.h>

#include <vector>

namespace walks {
namespace {

TEST(RandomGraph, IsTheSameInWhateverPiecesItIsMade) {
  const RandomGraph graph(0.3, 11, false, true);
  std::vector<std::uint8_t> whole(40UL * 40);
  graph.fill({0, 40, 0, 40}, whole.data());
  std::vector<std::uint8_t> piece(7UL * 13);
  graph.fill({20, 27, 5, 18}, piece.data());
  for (std::size_t r = 0; r < 7; ++r) {
    for (std::size_t c = 0; c < 13; ++c) {
      EXPECT_EQ(piece[r * 13 + c], whole[(20 + r) * 40 + 5 + c]);
    }
  }
}

// The files of published results must stay reproducible: these edges are part of the interface.
TEST(RandomGraph, OfASeedNeverChanges) {
  const RandomGraph graph(0.5, 1, false, false);
  std::vector<std::uint8_t> cells(4UL * 4);
  graph.fill({0, 4, 0, 4}, cells.data());
  EXPECT_EQ(cells, (std::vector<std::uint8_t>{0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0}));
}

TEST(RandomGraph, HasAboutTheProbabilitysShareOfEdgesAndNoLoops) {
  const RandomGraph graph(0.02, 5, false, false);
  constexpr std::int64_t kVertices = 1000;
  std::int64_t edges = 0;
  for (std::int64_t i = 0; i < kVertices; ++i) {
    EXPECT_FALSE(graph.edge(i, i));
    for (std::int64_t j = 0; j < kVertices; ++j) edges += graph.edge(i, j) ? 1 : 0;
  }
  // 19 980 expected, standard deviation 140: seven of them either way.
  EXPECT_NEAR(static_cast<double>(edges), 19980.0, 980.0);
}

TEST(RandomGraph, GoesBothWaysWhenUndirected) {
  const RandomGraph graph(0.5, 2, true, false);
  for (std::uint64_t i = 0; i < 50; ++i) {
    for (std::uint64_t j = 0; j < 50; ++j) EXPECT_EQ(graph.edge(i, j), graph.edge(j, i));
  }
}

TEST(RandomGraph, IsEmptyAtZeroAndCompleteAtOne) {
  EXPECT_FALSE(RandomGraph(0, 1, false, true).edge(3, 4));
  EXPECT_TRUE(RandomGraph(1, 1, false, true).edge(3, 4));
}

}  // namespace
}  // namespace walks
