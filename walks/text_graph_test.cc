#include "text_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <tuple>
#include <vector>

namespace walks {
namespace {

using Triple = std::tuple<std::int64_t, std::int64_t, std::uint64_t>;

std::vector<Triple> edges_of(const std::string& text, const TextOptions& options = {}) {
  std::istringstream stream(text);
  const auto graph = read_text_graph(stream, options);
  std::vector<Triple> edges;
  while (const auto edge = graph->next()) edges.emplace_back(edge->from, edge->to, edge->weight);
  return edges;
}

// "line: sentence" of the error, or "accepted".
std::string refusal(const std::string& text, const TextOptions& options = {}) {
  try {
    (void)edges_of(text, options);
  } catch (const TextError& error) {
    return std::to_string(error.line()) + ": " + error.what();
  }
  return "accepted";
}

const std::string kBanner = "%%MatrixMarket matrix coordinate pattern general\n";

TEST(EdgeList, ReadsVerticesWeightsAndComments) {
  EXPECT_EQ(edges_of("# a comment\n1 2\n\n2\t3 7\r\n% another\n3,1,2\n4 1"),
            (std::vector<Triple>{{0, 1, 1}, {1, 2, 7}, {2, 0, 2}, {3, 0, 1}}));
}

TEST(EdgeList, MirrorsUndirectedEdgesButNotLoops) {
  EXPECT_EQ(edges_of("1 2\n2 2\n", {.undirected = true}),
            (std::vector<Triple>{{0, 1, 1}, {1, 0, 1}, {1, 1, 1}}));
}

TEST(EdgeList, CountsFromZeroWhenTold) {
  EXPECT_EQ(edges_of("0 1\n", {.first_vertex = 0}), (std::vector<Triple>{{0, 1, 1}}));
}

TEST(EdgeList, IsRefusedWithTheLine) {
  EXPECT_EQ(refusal("1 2\n1 x\n"), "2: vertex \"x\" is not a whole number");
  EXPECT_EQ(refusal("1 2\n\n7\n"),
            "3: expected two vertices and perhaps a weight, found 1 fields in \"7\"");
  EXPECT_EQ(refusal("0 1\n"),
            "1: vertex 0, but the list's first vertex is 1; --first-vertex 0 counts from 0");
  EXPECT_EQ(refusal("1 -2\n"), "1: vertex \"-2\" is not a whole number");
  EXPECT_EQ(refusal("1 99999999999999999999\n"),
            "1: vertex \"99999999999999999999\" is larger than 1073741823");
  EXPECT_EQ(refusal("1 2 0.5\n"),
            "1: weight \"0.5\" is not a whole number of 0 or more; --ignore-weights counts every "
            "entry as 1");
  EXPECT_EQ(refusal("1 2 nan\n").substr(0, 15), "1: weight \"nan\"");
  EXPECT_EQ(refusal("1 2\n" + std::string(5000, '7')),
            "2: the line is longer than 4096 bytes; is this a text file?");
}

TEST(MatrixMarket, ReadsCoordinatesOfEveryKind) {
  EXPECT_EQ(edges_of(kBanner + "% c\n3 3 2\n1 2\n3 1\n"),
            (std::vector<Triple>{{0, 1, 1}, {2, 0, 1}}));
  EXPECT_EQ(edges_of("%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 3.0\n2 2 1e2\n"),
            (std::vector<Triple>{{1, 0, 3}, {0, 1, 3}, {1, 1, 100}}));
  EXPECT_EQ(edges_of("%%matrixmarket MATRIX Coordinate Integer General\n2 2 1\n1 2 0\n"),
            std::vector<Triple>{});
  EXPECT_EQ(edges_of("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 -0.5\n",
                     {.ignore_weights = true}),
            (std::vector<Triple>{{0, 1, 1}}));
}

TEST(MatrixMarket, ReadsArraysDownTheirColumns) {
  EXPECT_EQ(edges_of("%%MatrixMarket matrix array integer general\n2 2\n1\n2\n0\n4\n"),
            (std::vector<Triple>{{0, 0, 1}, {1, 0, 2}, {1, 1, 4}}));
  EXPECT_EQ(edges_of("%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n4\n"),
            (std::vector<Triple>{{0, 0, 1}, {1, 0, 2}, {0, 1, 2}, {1, 1, 4}}));
}

TEST(MatrixMarket, IsRefusedWithTheLine) {
  EXPECT_EQ(refusal("%%MatrixMarket vector coordinate real general\n").substr(0, 11),
            "1: expected");
  EXPECT_EQ(refusal("%%MatrixMarket matrix coordinate complex general\n"),
            "1: field \"complex\" is not pattern, integer or real");
  EXPECT_EQ(refusal("%%MatrixMarket matrix coordinate real skew-symmetric\n"),
            "1: symmetry \"skew-symmetric\" is neither general nor symmetric");
  EXPECT_EQ(refusal(kBanner), "1: the line with the matrix's size is missing");
  EXPECT_EQ(refusal(kBanner + "3 4 1\n"),
            "2: a graph's matrix is square; this one has 3 rows and 4 columns");
  EXPECT_EQ(refusal(kBanner + "3 3 2\n1 2\n"), "3: the text ends after 1 of 2 entries");
  EXPECT_EQ(refusal(kBanner + "3 3 1\n1 2\n2 1\n"),
            "4: there is more after the 1 entries that the header declares");
  EXPECT_EQ(refusal(kBanner + "3 3 1\n1 4\n"), "3: column \"4\" is larger than 3");
  EXPECT_EQ(refusal(kBanner + "3 3 1\n0 1\n"), "3: row 0: Matrix Market counts from 1");
  EXPECT_EQ(refusal(kBanner + "3 3 1\n1 2 5\n"), "3: expected row and column, found \"1 2 5\"");
  EXPECT_EQ(refusal("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n1 2\n"),
            "3: a symmetric matrix lists its lower triangle only; row 1, column 2 lies above the "
            "diagonal");
}

// Whatever the bytes: edges within bounds, or an error that names a line.
TEST(TextGraph, EndsWithEdgesOrALineOnDamagedText) {
  const std::vector<std::string> seeds = {
      "1 2\n2 3 4\n# c\n3,1\n", kBanner + "3 3 2\n1 2\n3 1\n",
      "%%MatrixMarket matrix array real symmetric\n2 2\n1\n2.0\n4\n"};
  std::mt19937_64 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (std::uint64_t i = random() % 4 + 1; i > 0; --i) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.insert(at, 1, "0129 \n.%-e"[random() % 10]);
          break;
        default:
          text.resize(std::max<std::size_t>(at, 1));
      }
    }
    try {
      for (const auto& [from, to, weight] : edges_of(text)) {
        EXPECT_GE(from, 0);
        EXPECT_GE(to, 0);
      }
    } catch (const TextError& error) {
      EXPECT_GE(error.line(), 0);
    }
  }
}

}  // namespace
}  // namespace walks
