#include "layout.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace walks {
namespace {

TEST(Layout, GivesEveryCellItsOwnPlaceForAnyTile) {
  for (std::int64_t n = 1; n <= 12; ++n) {
    for (std::int64_t tile = 0; tile <= n + 1; ++tile) {
      const Layout layout(n, tile);
      std::vector<bool> seen(static_cast<std::size_t>(n * n));
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t col = 0; col < n; ++col) {
          const auto at = static_cast<std::size_t>(layout.position(row, col));
          ASSERT_LT(at, seen.size());
          ASSERT_FALSE(seen[at]);
          seen[at] = true;
        }
      }
    }
  }
}

TEST(Layout, RunsCoverTheRegionOnceAndInFileOrder) {
  std::mt19937_64 random(3);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  for (int round = 0; round < 500; ++round) {
    const std::int64_t n = below(20) + 1;
    const Layout layout(n, below(n + 2));
    Region region{below(n), 0, below(n), 0};
    region.row1 = region.row0 + below(n - region.row0 + 1);
    region.col1 = region.col0 + below(n - region.col0 + 1);
    std::vector<int> seen(static_cast<std::size_t>(region.cells()));
    std::int64_t reached = -1;
    for (const walks::Run& run : layout.runs(region)) {
      EXPECT_GT(run.file, reached);
      reached = run.file + run.length - 1;
      for (std::int64_t i = 0; i < run.length; ++i) {
        const std::int64_t index = run.buffer + i;
        ++seen[static_cast<std::size_t>(index)];
        EXPECT_EQ(layout.position(region.row0 + index / region.cols(),
                                  region.col0 + index % region.cols()),
                  run.file + i);
      }
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(Join, MakesOneExtentOfAWholeTileAndOfWholeRows) {
  const Layout tiled(8, 4);
  EXPECT_EQ(join(tiled.runs({4, 8, 0, 4}), 1000).size(), 1U);
  EXPECT_TRUE(join(tiled.runs({4, 8, 0, 4}), 1000).front().in_place);
  EXPECT_EQ(join(tiled.runs({4, 8, 0, 8}), 1000).size(), 1U);
  EXPECT_FALSE(join(tiled.runs({4, 8, 0, 8}), 1000).front().in_place);
  const Layout plain(8, 0);
  EXPECT_EQ(join(plain.runs({2, 5, 0, 8}), 1000).size(), 1U);
  EXPECT_EQ(join(plain.runs({2, 5, 0, 8}), 16).size(), 2U);
  EXPECT_EQ(join(plain.runs({2, 5, 0, 7}), 1000).size(), 3U);
}

}  // namespace
}  // namespace walks
