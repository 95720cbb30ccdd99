// What needs several ranks: run under mpirun, every rank runs every test, and all must pass.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "cells.h"
#include "import.h"
#include "matrix_file.h"
#include "power.h"
#include "questions.h"
#include "reference.h"
#include "store.h"

namespace {

// Once it is set, the so manieth allocation of a block's size is refused to this process.
std::atomic<int> lacking = 0;

// Not to oneDNN, which keeps no block in such memory, and dies of it.
bool lacks(std::size_t bytes, const void* caller) {
  if (bytes < 1000 || lacking == 0) return false;
  Dl_info found;
  if (dladdr(caller, &found) != 0 && std::strstr(found.dli_fname, "dnnl") != nullptr) return false;
  return --lacking == 0;
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = lacks(bytes, __builtin_return_address(0)) ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

extern "C" void* aligned_alloc(std::size_t unit, std::size_t bytes) noexcept {
  void* memory = nullptr;
  return lacks(bytes, __builtin_return_address(0)) || posix_memalign(&memory, unit, bytes) != 0
             ? nullptr
             : memory;
}

namespace walks {
namespace {

constexpr std::array kPatterns = {Pattern::block, Pattern::views, Pattern::collective,
                                  Pattern::rows, Pattern::shift};

Team* team = nullptr;
std::string folder;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A graph with weights that need the cell's whole width here and there; the same on all ranks.
struct Weighted {
  std::int64_t n;
  std::uint32_t cell;
  SparseGraph edges;
  std::vector<std::byte> cells;

  Weighted(std::int64_t vertices, std::uint32_t width, std::uint64_t most, std::uint64_t seed)
      : n(vertices),
        cell(width),
        edges(vertices),
        cells(static_cast<std::size_t>(vertices * vertices * width)) {
    std::mt19937_64 random(seed);
    for (std::int64_t i = 0; i < n * n; ++i) {
      if (random() % 3 != 0) continue;
      const std::uint64_t weight = 1 + random() % most;
      set_cell(cells.data(), cell, i, weight);
      edges.add(i / n, i % n, weight);
    }
  }

  // Collective: the graph as a file.
  void save(const std::string& path, std::uint64_t tile) const {
    Header header;
    header.n = static_cast<std::uint64_t>(n);
    header.cell = cell;
    header.tile = tile;
    MatrixFile file = MatrixFile::create(*team, path, header, false);
    const Region mine{cut(n, team->size(), team->rank()), cut(n, team->size(), team->rank() + 1), 0,
                      n};
    file.write(mine, cells.data() + mine.row0 * n * cell, Pattern::block);
    team->agree();
    file.finish();
  }
};

// The result's file, byte for byte, as the reference and the format's page have it.
std::string expected_file(const Weighted& graph, std::uint64_t exponent, std::uint32_t cell,
                          std::uint64_t tile, std::uint64_t cap, bool saturated) {
  const Header header{Kind::kWalks, static_cast<std::uint64_t>(graph.n), cell, tile, exponent, 1,
                      saturated};
  const auto start = encode(header);
  const Layout layout(graph.n, static_cast<std::int64_t>(tile));
  std::string bytes(kHeaderBytes + static_cast<std::size_t>(graph.n * graph.n * cell), '\0');
  std::memcpy(bytes.data(), start.data(), kHeaderBytes);
  auto* const cells = reinterpret_cast<std::byte*>(bytes.data() + kHeaderBytes);
  for (std::int64_t row = 0; row < graph.n; ++row) {
    const auto values = graph.edges.row_of_power(row, exponent, cap);
    for (std::int64_t col = 0; col < graph.n; ++col) {
      set_cell(cells, cell, layout.position(row, col), values[static_cast<std::size_t>(col)]);
    }
  }
  return bytes;
}

void expect_power(const std::string& input, const PowerRequest& request, const Access& access,
                  const std::string& expected) {
  MatrixFile graph = MatrixFile::open(*team, input);
  const std::string output = folder + "/power.wm";
  raise(*team, graph, request, access, output);
  EXPECT_TRUE(bytes_of(output) == expected)
      << "pattern " << static_cast<int>(access.pattern) << ", memory " << access.memory;
  MPI_Barrier(MPI_COMM_WORLD);
  for (const char* const rest : {".partial", ".scratch0", ".scratch1"}) {
    EXPECT_FALSE(std::filesystem::exists(output + rest));
  }
}

TEST(Power, HasTheSameBytesWithEveryPatternInEitherLayout) {
  const Weighted graph(29, 1, 3, 1);
  const std::string expected = expected_file(graph, 3, 4, 0, ~std::uint64_t{0}, false);
  const std::string expected_tiles = expected_file(graph, 3, 4, 10, ~std::uint64_t{0}, false);
  for (const std::uint64_t tile : {0, 10}) {
    const std::string input = folder + "/graph.wm";
    graph.save(input, tile);
    for (const Pattern pattern : kPatterns) {
      PowerRequest request{.exponent = 3, .cell = 4, .tile = tile};
      expect_power(input, request, {.pattern = pattern}, tile == 0 ? expected : expected_tiles);
    }
  }
}

TEST(Power, LargerThanMemoryHasTheSameBytes) {
  const Weighted graph(31, 2, 60000, 2);
  const std::string input = folder + "/graph.wm";
  graph.save(input, 0);
  const std::string expected = expected_file(graph, 2, 8, 0, ~std::uint64_t{0}, false);
  for (const Pattern pattern : {Pattern::collective, Pattern::shift}) {
    expect_power(input, {.exponent = 2, .cell = 8}, {.pattern = pattern, .memory = 4096}, expected);
  }
}

TEST(Power, HandsOverByReopeningToo) {
  const Weighted graph(17, 1, 2, 3);
  const std::string input = folder + "/graph.wm";
  graph.save(input, 0);
  const std::string expected = expected_file(graph, 4, 4, 0, ~std::uint64_t{0}, false);
  expect_power(input, {.exponent = 4, .cell = 4}, {.handover = Handover::reopen}, expected);
}

TEST(Power, BySquaringIsTheSame) {
  const Weighted graph(13, 1, 2, 4);
  const std::string input = folder + "/graph.wm";
  graph.save(input, 0);
  const std::string expected = expected_file(graph, 7, 8, 0, ~std::uint64_t{0}, false);
  expect_power(input, {.exponent = 7, .cell = 8, .schedule = Schedule::squaring}, {}, expected);
}

TEST(Power, SaturatesToTheSmallerOfValueAndMaximumAtEveryWidth) {
  for (const std::uint32_t cell : {1U, 2U, 4U, 8U}) {
    const Weighted graph(11, cell, largest(cell), 5);
    const std::string input = folder + "/graph.wm";
    graph.save(input, 0);
    expect_power(input, {.exponent = 3, .cell = cell, .saturate = true}, {},
                 expected_file(graph, 3, cell, 0, largest(cell), true));
  }
}

TEST(Power, OverflowNamesPowerCellAndValueAndLeavesNoFile) {
  const std::string input = folder + "/graph.wm";
  Weighted graph(12, 1, 1, 6);
  std::fill(graph.cells.begin(), graph.cells.end(), std::byte{1});  // complete: A^p is 12^(p-1)
  graph.save(input, 0);
  MatrixFile file = MatrixFile::open(*team, input);
  const std::string output = folder + "/overflow.wm";
  try {
    raise(*team, file, {.exponent = 5, .cell = 1}, {}, output);
    ADD_FAILURE() << "no error";
  } catch (const AgreedError& error) {
    EXPECT_STREQ(error.what(),
                 "power 4 overflows: cell (1, 1) is 1728, and a cell of 1 byte holds at most 255; "
                 "choose wider cells (--cell 2) or --saturate to keep the maximum there");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_FALSE(std::filesystem::exists(output));
  EXPECT_FALSE(std::filesystem::exists(output + ".partial"));
}

TEST(Questions, AgreeWithTheReferenceOnTheKarateClub) {
  ImportRequest request;
  request.text.undirected = true;
  ImportSummary summary;
  const std::string path = folder + "/karate.wm";
  import_text(*team, std::string(WALKS_TESTDATA) + "/karate.txt", path, request, {}, summary)
      .finish();
  EXPECT_EQ(summary.vertices, 34U);
  EXPECT_EQ(summary.edges, 2U * 78U);
  MatrixFile graph = MatrixFile::open(*team, path);
  EXPECT_EQ(count_triangles(*team, graph, true, {}).triangles, 45U);

  const std::string lengths = folder + "/lengths.wm";
  const LengthsSummary found = shortest_lengths(*team, graph, 0, 1, 0, {}, lengths);
  EXPECT_EQ(found.longest, 5U);
  EXPECT_EQ(found.connected, 34U * 33U);
  EXPECT_TRUE(found.complete);
  MatrixFile result = MatrixFile::open(*team, lengths);
  const Verdict verdict = verify(*team, graph, result, 0, {});
  EXPECT_EQ(verdict.rows, 34U);
  EXPECT_EQ(verdict.wrong, 0U);
}

// The graph's cells are moved by the same pieces as the lengths are.
TEST(Questions, MoveNoMoreAtOnceThanAnMpiCountCanName) {
  for (const std::uint32_t graph_cell : {1U, 8U}) {
    for (const std::uint32_t cell : {1U, 8U}) {
      Header header;
      header.n = 100000;
      header.cell = graph_cell;
      const Plan plan =
          plan_of_lengths(team->grid(), header, cell, {.memory = std::int64_t{1} << 50});
      const Region region = plan.out(0, 0, 0, 0);
      EXPECT_LE(region.cells() * std::max(graph_cell, cell), std::numeric_limits<int>::max());
    }
  }
}

TEST(Questions, GiveThePapersExampleValues) {
  ImportSummary summary;
  const std::string path = folder + "/paper.wm";
  import_text(*team, std::string(WALKS_TESTDATA) + "/paper.mtx", path, {}, {}, summary).finish();
  MatrixFile graph = MatrixFile::open(*team, path);
  EXPECT_EQ(walks_between(*team, graph, 2, 3, 2, {}), 2U);
  EXPECT_EQ(walks_between(*team, graph, 3, 3, 3, {}), 2U);
  const Triangles triangles = count_triangles(*team, graph, false, {});
  EXPECT_EQ(triangles.triangles, 2U);
  EXPECT_EQ(triangles.closed_walks, 6U);
  const std::string lengths = folder + "/lengths.wm";
  shortest_lengths(*team, graph, 0, 2, 0, {.pattern = Pattern::shift}, lengths);
  MatrixFile result = MatrixFile::open(*team, lengths);
  EXPECT_EQ(walks_between(*team, result, 1, 2, 0, {}), 2U);
  raise(*team, graph, {.exponent = 3, .cell = 1}, {}, folder + "/cube.wm");
  EXPECT_EQ(bytes_of(folder + "/cube.wm"),
            bytes_of(std::string(WALKS_TESTDATA) + "/paper-power3.wm"));
}

TEST(Power, ThatExceeds64BitsIsRefused) {
  const std::string path = folder + "/graph.wm";
  Weighted(3, 1, 1, 1).save(path, 0);
  MatrixFile file = MatrixFile::open(*team, path);
  file.set_power(std::uint64_t{1} << 63);
  EXPECT_THROW(raise(*team, file, {.exponent = 2}, {}, folder + "/high.wm"), AgreedError);
  EXPECT_THROW(walks_between(*team, file, 2, 0, 1, {}), AgreedError);
  EXPECT_EQ(power_of(file, 1), std::uint64_t{1} << 63);
}

// Whichever block it is that a rank has no memory for, and whatever the others are in the middle
// of.
TEST(Memory, ThatOneRankLacksEndsAllInOneSentenceAndLeavesNoFile) {
  const std::string input = folder + "/graph.wm";
  const std::string output = folder + "/lacking.wm";
  Weighted(64, 2, 300, 7).save(input, 0);
  MatrixFile graph = MatrixFile::open(*team, input);
  const auto power = [&](Pattern pattern) {
    raise(*team, graph, {.exponent = 2, .cell = 8}, {.pattern = pattern}, output);
  };
  const std::vector<std::function<void()>> questions = {
      [&] { power(Pattern::collective); }, [&] { power(Pattern::shift); },
      [&] { shortest_lengths(*team, graph, 2, 2, 0, {}, output); },
      [&] { count_triangles(*team, graph, false, {.pattern = Pattern::shift}); },
      [&] { walks_between(*team, graph, 2, 3, 4, {}); },
      // Tiles are described to the MPI one by one, which takes memory too.
      [&] {
        Header header = graph.header();
        header.cell = 4;
        header.tile = 16;
        MatrixFile tiled = MatrixFile::create(*team, output, header, true);
        copy(*team, graph, tiled, Pattern::collective, 1 << 20, false, true);
      }};
  const int who = team->size() - 1;
  for (const auto& ask : questions) {
    for (int nth = 1;; ++nth) {
      std::string error;
      if (team->rank() == who) lacking = nth;
      try {
        ask();
      } catch (const AgreedError& agreed) {
        error = agreed.what();
      }
      int refused = team->rank() == who && lacking == 0 ? 1 : 0;
      lacking = 0;
      MPI_Bcast(&refused, 1, MPI_INT, who, team->comm());
      if (refused == 0) {
        EXPECT_GT(nth, 1) << "no allocation was refused";
        break;
      }
      MPI_Barrier(team->comm());  // rank 0 removes what there was
      EXPECT_EQ(error, "out of memory; lower --memory or use more ranks") << nth;
      for (const char* const rest : {"", ".partial", ".scratch0", ".scratch1"}) {
        EXPECT_FALSE(std::filesystem::exists(output + rest)) << rest;
      }
    }
    if (team->leads()) std::filesystem::remove(output);
    MPI_Barrier(team->comm());
  }
}

TEST(Verify, FindsASingleWrongCell) {
  const Weighted graph(15, 1, 2, 8);
  const std::string input = folder + "/graph.wm";
  graph.save(input, 0);
  const std::string output = folder + "/wrong.wm";
  {
    MatrixFile file = MatrixFile::open(*team, input);
    raise(*team, file, {.exponent = 2, .cell = 2}, {}, output);
  }
  if (team->leads()) {
    std::fstream file(output, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(kHeaderBytes) + (7L * 15 + 3) * 2 + 1);
    file.put(1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MatrixFile file = MatrixFile::open(*team, input);
  MatrixFile result = MatrixFile::open(*team, output);
  const Verdict verdict = verify(*team, file, result, 0, {});
  EXPECT_EQ(verdict.wrong, 1U);
  EXPECT_EQ(verdict.row, 7U);
  EXPECT_EQ(verdict.col, 3U);
  EXPECT_EQ(verdict.found, verdict.expected + 256);
}

TEST(Generated, GraphDependsOnItsSeedOnly) {
  ImportSummary summary;
  Header header;
  header.n = 37;
  const RandomGraph random(0.3, 9, false, false);
  const std::string path = folder + "/random.wm";
  generate(*team, random, path, header, {.memory = 4096}, summary).finish();
  const std::string bytes = bytes_of(path);
  std::vector<std::uint8_t> cells(37UL * 37);
  random.fill({0, 37, 0, 37}, cells.data());
  EXPECT_TRUE(std::equal(cells.begin(), cells.end(), bytes.begin() + kHeaderBytes,
                         [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); }));
}

TEST(Text, ErrorsNameTheFileAndLineOnEveryRank) {
  const std::string path = folder + "/bad.txt";
  if (team->leads()) std::ofstream(path) << "1 2\n2 3\n1 2\n";
  MPI_Barrier(MPI_COMM_WORLD);
  ImportSummary summary;
  try {
    import_text(*team, path, folder + "/bad.wm", {}, {}, summary);
    ADD_FAILURE() << "no error";
  } catch (const AgreedError& error) {
    EXPECT_EQ(std::string(error.what()),
              path +
                  ", line 3: edge 1 -> 2 stands here for the second time; --duplicates sum adds "
                  "such edges up, --duplicates one counts them once");
  }
}

TEST(MatrixFile, RefusesDamagedFiles) {
  const Weighted graph(5, 1, 1, 1);
  const std::string path = folder + "/graph.wm";
  graph.save(path, 0);
  if (team->leads()) std::filesystem::resize_file(path, kHeaderBytes + 24);
  MPI_Barrier(MPI_COMM_WORLD);
  try {
    const MatrixFile file = MatrixFile::open(*team, path);
    ADD_FAILURE() << "no error";
  } catch (const AgreedError& error) {
    EXPECT_EQ(std::string(error.what()),
              path + " is damaged: its header asks for 4121 bytes, it has 4120");
  }
}

}  // namespace
}  // namespace walks

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  int failed = 0;
  {
    walks::Team team;
    team.set_threads(1);
    walks::team = &team;
    std::array<char, 64> name = {"/tmp/walks-test-XXXXXX"};
    if (team.leads() && mkdtemp(name.data()) == nullptr) std::abort();
    MPI_Bcast(name.data(), name.size(), MPI_CHAR, 0, MPI_COMM_WORLD);
    walks::folder = name.data();
    if (!team.leads()) {
      auto& listeners = testing::UnitTest::GetInstance()->listeners();
      delete listeners.Release(listeners.default_result_printer());
    }
    failed = RUN_ALL_TESTS();
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (team.leads()) std::filesystem::remove_all(walks::folder);
  }
  MPI_Finalize();
  return failed;
}
