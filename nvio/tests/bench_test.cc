// What nvio-bench's figures rest on.
#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "../bench/harness.h"
#include "../bench/placed.h"

namespace nvio::bench {
namespace {

// By the normal approximation it leaves out 0.98 sqrt(n) values less than half on each side.
TEST(Bench, AnIntervalOfManyRoundsIsAsWideAsTheirSpread) {
  for (const std::size_t rounds : {100U, 1074U, 1075U, 10000U}) {
    std::vector<double> values(rounds);
    std::iota(values.begin(), values.end(), 0.0);
    const Interval found = median_interval(values);
    const double n = static_cast<double>(rounds);
    EXPECT_NEAR(found.low, (n - 1) / 2 - 0.98 * std::sqrt(n), 1.5) << rounds;
    EXPECT_EQ(found.low + found.high, n - 1) << rounds;
  }
}

TEST(Bench, StaysOnTheProcessorsThatItWasGiven) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  unsigned last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &before)) --last;
  cpu_set_t given;
  CPU_ZERO(&given);
  CPU_SET(last, &given);
  ASSERT_EQ(sched_setaffinity(0, sizeof given, &given), 0);
  for (const int place : {0, 1}) {
    const Placed here(place);
    cpu_set_t now;
    sched_getaffinity(0, sizeof now, &now);
    EXPECT_TRUE(CPU_EQUAL(&now, &given)) << place;
  }
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace nvio::bench
