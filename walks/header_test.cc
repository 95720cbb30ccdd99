#include "header.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace walks {
namespace {

std::vector<std::byte> golden(const std::string& name) {
  std::ifstream file(std::string(WALKS_TESTDATA) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string refusal(std::span<const std::byte> bytes) {
  try {
    (void)decode(bytes);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Header, OfThePapersCubeHasTheGoldenBytes) {
  const auto bytes = golden("paper-power3.wm");
  ASSERT_EQ(bytes.size(), kHeaderBytes + 16);
  const Header header = decode(bytes);
  EXPECT_EQ(header.kind, Kind::kWalks);
  EXPECT_EQ(header.n, 4U);
  EXPECT_EQ(header.cell, 1U);
  EXPECT_EQ(header.tile, 0U);
  EXPECT_EQ(header.power, 3U);
  EXPECT_EQ(header.first_vertex, 1U);
  EXPECT_FALSE(header.saturated);
  const auto again = encode(header);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), bytes.begin()));
  const std::vector<int> cube = {1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2};
  for (std::size_t i = 0; i < cube.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[kHeaderBytes + i]), cube[i]);
  }
}

TEST(Header, SurvivesEncodingAndDecoding) {
  const Header header{Kind::kLengths, 12345, 8, 100, 77, 0, true};
  const Header again = decode(encode(header));
  EXPECT_EQ(again.kind, header.kind);
  EXPECT_EQ(again.n, header.n);
  EXPECT_EQ(again.cell, header.cell);
  EXPECT_EQ(again.tile, header.tile);
  EXPECT_EQ(again.power, header.power);
  EXPECT_EQ(again.first_vertex, header.first_vertex);
  EXPECT_EQ(again.saturated, header.saturated);
}

TEST(Header, IsRefusedWhenAnyBitOfItIsFlipped) {
  const auto good = encode(Header{Kind::kWalks, 4, 1, 0, 1, 1, false});
  for (std::size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    auto bytes = good;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_NE(refusal(bytes), "accepted") << "bit " << bit;
  }
}

TEST(Header, IsRefusedWithASentence) {
  const auto good = encode(Header{Kind::kWalks, 4, 1, 0, 1, 1, false});
  EXPECT_EQ(refusal(std::span(good).first(100)), "it ends within its header");
  EXPECT_EQ(refusal({}), "it does not begin with WALKSMAT");
  EXPECT_EQ(refusal(encode(Header{Kind::kWalks, 0, 1, 0, 1, 1, false})), "it claims 0 vertices");
  EXPECT_EQ(refusal(encode(Header{Kind::kWalks, 4, 3, 0, 1, 1, false})),
            "its cells have 3 bytes, not 1, 2, 4 or 8");
}

}  // namespace
}  // namespace walks
