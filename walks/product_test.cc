#include "product.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cells.h"
#include "header.h"

namespace walks {
namespace {

using Wide = unsigned __int128;

struct Block {
  std::int64_t rows;
  std::int64_t cols;
  std::uint32_t cell;
  std::vector<std::byte> cells;

  Block(std::int64_t r, std::int64_t c, std::uint32_t width)
      : rows(r), cols(c), cell(width), cells(static_cast<std::size_t>(r * c * width)) {}
  [[nodiscard]] std::uint64_t at(std::int64_t r, std::int64_t c) const {
    return get_cell(cells.data(), cell, r * cols + c);
  }
  void set(std::int64_t r, std::int64_t c, std::uint64_t value) {
    set_cell(cells.data(), cell, r * cols + c, value);
  }
};

// Cells that favour what breaks: zeros, ones, the largest value, and any number of bits.
Block random_block(std::mt19937_64& random, std::int64_t rows, std::int64_t cols,
                   std::uint32_t cell) {
  Block block(rows, cols, cell);
  const int most_bits = static_cast<int>(random() % (8UL * cell)) + 1;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - most_bits);
    const std::uint64_t kind = random() % 4;
    set_cell(block.cells.data(), cell, i, kind == 0 ? 0 : kind == 1 ? mask : random() & mask);
  }
  return block;
}

Wide naive(const std::vector<std::pair<const Block*, const Block*>>& terms, std::int64_t r,
           std::int64_t c) {
  Wide sum = 0;
  for (const auto& [a, b] : terms) {
    for (std::int64_t k = 0; k < a->cols; ++k) sum += Wide{a->at(r, k)} * b->at(k, c);
  }
  return sum;
}

// Adds the products of all terms and compares every cell, and the overflow, with the naive sum.
void expect_exact(const std::vector<std::pair<const Block*, const Block*>>& terms,
                  std::uint32_t out_cell, std::uint64_t cap) {
  const std::int64_t rows = terms.front().first->rows;
  const std::int64_t cols = terms.front().second->cols;
  Accumulator sum;
  sum.reset(rows, cols);
  for (const auto& [a, b] : terms) {
    Planes left;
    Planes right;
    left.load(a->cells.data(), a->cell, a->rows, a->cols);
    right.load(b->cells.data(), b->cell, b->rows, b->cols);
    sum.add(left, right);
  }
  const auto [out, overflow] = sum.narrow(out_cell, cap);
  std::optional<std::pair<std::int64_t, std::int64_t>> first;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const Wide exact = naive(terms, r, c);
      if (exact > cap && !first) first = {r, c};
      ASSERT_EQ(get_cell(out, out_cell, r * cols + c),
                static_cast<std::uint64_t>(std::min<Wide>(exact, cap)))
          << "cell " << r << ", " << c << " of " << rows << " x " << cols;
    }
  }
  ASSERT_EQ(overflow.has_value(), first.has_value());
  if (!overflow) return;
  EXPECT_EQ(overflow->row, first->first);
  EXPECT_EQ(overflow->col, first->second);
  const Wide exact = naive(terms, overflow->row, overflow->col);
  if (overflow->value) {
    EXPECT_EQ(*overflow->value, static_cast<std::uint64_t>(exact));
  } else {
    EXPECT_GT(exact, Wide{~std::uint64_t{0}});
  }
}

TEST(Product, EqualsTheNaiveOneForEveryPairOfCellWidths) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 25; ++round) {
    // Of one shape in all widths: oneDNN makes code for each anew, which takes it milliseconds.
    const auto rows = static_cast<std::int64_t>(random() % 30) + 1;
    const auto k = static_cast<std::int64_t>(random() % 50) + 1;
    const auto cols = static_cast<std::int64_t>(random() % 30) + 1;
    for (const std::uint32_t left : {1U, 2U, 4U, 8U}) {
      for (const std::uint32_t right : {1U, 2U, 4U, 8U}) {
        const Block a = random_block(random, rows, k, left);
        const Block b = random_block(random, k, cols, right);
        const std::uint32_t out = std::uint32_t{1} << random() % 4;
        const std::uint64_t cap = random() % 3 == 0 ? 1 : largest(out);
        expect_exact({{&a, &b}}, out, cap);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Product, SumsOfSeveralProductsAreExact) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 60; ++round) {
    const Block a = random_block(random, 9, 11, std::uint32_t{1} << random() % 4);
    const Block b = random_block(random, 11, 5, std::uint32_t{1} << random() % 4);
    const Block c = random_block(random, 9, 3, 1);
    const Block d = random_block(random, 3, 5, 1);
    expect_exact({{&c, &d}, {&a, &b}, {&c, &d}}, 8, largest(8));
    if (HasFatalFailure()) return;
  }
}

Block filled(std::int64_t rows, std::int64_t cols, std::uint32_t cell, std::uint64_t value) {
  Block block(rows, cols, cell);
  for (std::int64_t i = 0; i < rows * cols; ++i) set_cell(block.cells.data(), cell, i, value);
  return block;
}

TEST(Product, FullPlanesBeyondTheTermsOfOneSumAreExact) {
  const std::int64_t k = 2 * kMostTerms + 5;
  const Block a = filled(3, k, 1, 127);
  const Block b = filled(k, 2, 1, 127);
  expect_exact({{&a, &b}}, 8, largest(8));
}

TEST(Product, FullPlanePairsOfOneWeightBeyondTheTermsOfOneSumAreExact) {
  const std::int64_t k = kMostTerms + 3;
  const Block a = filled(2, k, 4, (1 << 21) - 1);
  const Block b = filled(k, 2, 4, (1 << 21) - 1);
  expect_exact({{&a, &b}}, 8, largest(8));
}

// Sums that stay in s32 from call to call must leave it in time.
TEST(Product, ManySumsOfFullPlanesAreExact) {
  const Block a = filled(2, 50000, 1, 127);
  const Block b = filled(50000, 2, 1, 127);
  expect_exact({{&a, &b}, {&a, &b}, {&a, &b}, {&a, &b}}, 4, largest(4));
}

// So must sums of several planes, with others between them, whatever cells come of them.
TEST(Product, ManySmallSumsOfSeveralPlanesAreExact) {
  const Block a = filled(2, 11000, 1, 255);
  const Block b = filled(11000, 3, 1, 255);
  const Block c = filled(2, 40, 1, 3);
  const Block d = filled(40, 3, 1, 100);
  for (const std::uint32_t out : {1U, 2U, 4U, 8U}) {
    expect_exact({{&a, &b}}, out, largest(out));
    expect_exact({{&c, &d}, {&a, &b}, {&c, &d}, {&a, &b}}, out, largest(out));
    expect_exact({{&a, &b}, {&a, &b}, {&c, &d}, {&a, &b}, {&a, &b}}, out, largest(out) / 3);
    if (HasFatalFailure()) return;
  }
}

TEST(Product, TheLargestCellOfEightBytesIsNoOverflow) {
  Block a = filled(1, 2, 8, 1);
  Block b = filled(2, 1, 8, 0);
  b.set(0, 0, ~std::uint64_t{0} - 5);
  b.set(1, 0, 5);
  expect_exact({{&a, &b}}, 8, largest(8));
  b.set(1, 0, 6);
  expect_exact({{&a, &b}}, 8, largest(8));
}

TEST(Product, MoreRowsThanAStripAreExact) {
  std::mt19937_64 random(9);
  for (const std::uint32_t cell : {1U, 2U}) {
    const Block a = random_block(random, 1100, 7, cell);
    const Block b = random_block(random, 7, 3, cell);
    expect_exact({{&a, &b}}, 4, largest(4));
  }
}

// Whatever part of a block: oneDNN has other kernels for few rows, for few columns, within lines.
TEST(PackedBytes, AreMultipliedExactlyUpToTheLargestSum) {
  constexpr std::int64_t kRows = 40;
  for (const std::int64_t k : {std::int64_t{1}, std::int64_t{1041}, kMostTerms}) {
    for (const std::int64_t cols : {1, 2, 17, 64, 65}) {
      for (const std::int64_t lda : {k, k + 5}) {
        const std::vector<std::uint8_t> left(static_cast<std::size_t>(kRows * lda), 127);
        const std::vector<std::uint8_t> right(static_cast<std::size_t>(k * cols), 127);
        PackedBytes packed;
        packed.pack(right.data(), k, cols, kRows, lda);
        PackedBytes taken;
        taken.take(right.data(), k, cols);
        for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{3}, kRows}) {
          for (const PackedBytes* const bytes : {&packed, &taken}) {
            std::vector<std::int32_t> sums(static_cast<std::size_t>(rows * cols));
            bytes->multiply(rows, left.data(), lda, sums.data());
            for (const std::int32_t sum : sums) {
              ASSERT_EQ(sum, k * 127 * 127) << rows << " x " << k << " x " << cols << " in " << lda;
            }
          }
        }
      }
    }
  }
}

TEST(Planes, AreAsManyAsTheValueNeeds) {
  EXPECT_EQ(planes_for(0), 1);
  EXPECT_EQ(planes_for(127), 1);
  EXPECT_EQ(planes_for(128), 2);
  EXPECT_EQ(planes_for(largest(4)), 5);
  EXPECT_EQ(planes_for(largest(8)), 10);
}

}  // namespace
}  // namespace walks
