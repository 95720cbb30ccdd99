#include "grid.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "header.h"

namespace walks {
namespace {

TEST(Grid, TakesTheMostNearlySquarePairOfFactors) {
  const auto grid = [](int ranks) {
    const Grid g = Grid::of(ranks);
    return std::pair(g.rows, g.cols);
  };
  EXPECT_EQ(grid(1), std::pair(1, 1));
  EXPECT_EQ(grid(2), std::pair(1, 2));
  EXPECT_EQ(grid(3), std::pair(1, 3));
  EXPECT_EQ(grid(4), std::pair(2, 2));
  EXPECT_EQ(grid(5), std::pair(2, 2));
  EXPECT_EQ(grid(6), std::pair(2, 3));
  EXPECT_EQ(grid(9), std::pair(3, 3));
  EXPECT_EQ(grid(11), std::pair(2, 5));
  EXPECT_EQ(grid(625), std::pair(25, 25));
}

TEST(Grid, IdlesFewRanks) {
  for (int ranks = 1; ranks <= 1000; ++ranks) {
    const Grid grid = Grid::of(ranks);
    EXPECT_LE(grid.cols, 4 * grid.rows);
    EXPECT_LE(ranks - grid.active(), ranks / 5) << ranks;
  }
}

// What makes the schedule a product: every rank meets each panel once, and at no step do two ranks
// of a row, or of a column, want the same panel.
TEST(Grid, CannonsScheduleIsAPermutationAtEveryStep) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    const Grid grid = Grid::of(ranks);
    const int steps = grid.steps();
    for (int t = 0; t < steps; ++t) {
      for (int i = 0; i < grid.rows; ++i) {
        std::set<int> homes;
        for (int j = 0; j < grid.cols; ++j) homes.insert((i + j + t) % steps % grid.cols);
        EXPECT_EQ(static_cast<int>(homes.size()), grid.cols);
      }
      for (int j = 0; j < grid.cols; ++j) {
        std::set<int> homes;
        for (int i = 0; i < grid.rows; ++i) homes.insert((i + j + t) % steps % grid.rows);
        EXPECT_EQ(static_cast<int>(homes.size()), grid.rows);
      }
    }
  }
}

TEST(Plan, FitsItsWorkingSetAndCoversTheMatrixOnce) {
  for (const int ranks : {1, 2, 3, 4, 6, 9}) {
    for (const std::int64_t n : {1, 2, 7, 50}) {
      for (const std::int64_t memory : {500, 5000, 1 << 20}) {
        const CellWidths widths{4, 1, 4};
        const Plan plan = Plan::fit(Grid::of(ranks), n, widths, true, memory);
        EXPECT_LE(plan.working_set(widths, true), memory);
        std::int64_t covered = 0;
        for (std::int64_t d = 0; d < plan.down; ++d) {
          for (std::int64_t a = 0; a < plan.across; ++a) {
            for (int i = 0; i < plan.grid.rows; ++i) {
              for (int j = 0; j < plan.grid.cols; ++j) {
                const Region region = plan.out(d, a, i, j);
                covered += region.cells();
              }
            }
          }
        }
        EXPECT_EQ(covered, n * n);
      }
    }
  }
}

TEST(Plan, RefusesAMemoryInWhichNothingFits) {
  try {
    (void)Plan::fit(Grid::of(4), 100, {8, 8, 8}, false, 10);
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("10 bytes a rank; raise --memory"), std::string::npos)
        << error.what();
  }
}

TEST(Strips, CoverAllRowsWithEqualRoundsForEveryRank) {
  for (const std::int64_t n : {1, 5, 64, 101}) {
    for (const int ranks : {1, 3, 8}) {
      const Strips strips(n, ranks, n, 300);
      std::int64_t rows = 0;
      for (std::int64_t round = 0; round < strips.rounds(); ++round) {
        for (int rank = 0; rank < ranks; ++rank) {
          const Region region = strips.of(rank, round);
          EXPECT_TRUE(region.rows() <= 1 || region.cells() <= 300 + n);
          rows += region.rows();
        }
      }
      EXPECT_EQ(rows, n);
    }
  }
}

}  // namespace
}  // namespace walks
