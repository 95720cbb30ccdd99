// Types of the MPI at hand, decoded; where each byte lies is asked of MPI_Pack.
#include "../mpi/type_map.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "../cache/view.h"
#include "../conformance/random_types.h"
#include "../mpi/functions.h"

namespace nvio {
namespace {

constexpr std::size_t kMost = 1 << 16;

using random_types::packed_places;
using random_types::Places;

Places places_of(const TypeMap& map) {
  Places places;
  for (const TypeMap::Run& run : map.runs) {
    for (std::int64_t i = 0; i < run.length; ++i) places.push_back(run.offset + i);
  }
  return places;
}

MPI_Datatype unit_of(int seed) {
  const MPI_Datatype units[] = {MPI_BYTE,   MPI_SHORT,     MPI_INT,
                                MPI_DOUBLE, MPI_SHORT_INT, MPI_DOUBLE_INT};
  return units[static_cast<std::size_t>(seed) % std::size(units)];
}

TEST(TypeMap, IsWherePackTakesTheBytesFrom) {
  constexpr MPI_Aint kReach = 200000;
  for (int seed = 0; seed < 3000; ++seed) {
    random_types::Random random(static_cast<std::uint64_t>(seed));
    random_types::Types types(random, unit_of(seed), seed % 2 == 0);
    MPI_Datatype type = types.make(1 + seed % 4, kReach);
    const auto map = type_map_of(type, kMost);
    ASSERT_TRUE(map) << seed;
    ASSERT_EQ(places_of(*map), packed_places(type, kReach + 1)) << seed;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(type, &lower, &extent);
    ASSERT_EQ(map->extent, extent);
    for (std::size_t i = 1; i < map->runs.size(); ++i) {
      ASSERT_NE(map->runs[i - 1].offset + map->runs[i - 1].length, map->runs[i].offset)
          << "joined as far as they adjoin";
    }
    MPI_Type_free(&type);
  }
}

TEST(View, WalksTheBytesOfItsTilesInOrder) {
  for (int seed = 0; seed < 1500; ++seed) {
    random_types::Random random(static_cast<std::uint64_t>(seed));
    random_types::Types types(random, unit_of(seed), true);
    MPI_Datatype type = types.make(1 + seed % 4, 5000);
    const TypeMap map = *type_map_of(type, kMost);
    MPI_Type_free(&type);
    const auto view = View::of(map, 1000);
    ASSERT_TRUE(view) << seed;
    Places places;
    for (int tile = 0; tile < 5; ++tile) {
      for (const std::int64_t place : places_of(map)) {
        places.push_back(1000 + tile * map.extent + place);
      }
    }
    for (int turn = 0; turn < 5; ++turn) {
      const std::uint64_t from = random() % places.size();
      const std::uint64_t length = random() % (places.size() - from);
      Places walked;
      View::Walk walk(*view, from, length);
      std::vector<FileRun> runs;
      for (std::uint64_t all = 0;;) {
        const std::uint64_t bytes = walk.next(runs, 1 + random() % 7);
        if (bytes == 0) break;
        for (const FileRun& run : runs) {
          for (std::uint64_t at = run.offset; at < run.end(); ++at) {
            walked.push_back(static_cast<std::int64_t>(at));
          }
        }
        all += bytes;
        ASSERT_EQ(all, walked.size());
      }
      const auto begin = places.begin() + static_cast<std::ptrdiff_t>(from);
      ASSERT_EQ(walked, Places(begin, begin + static_cast<std::ptrdiff_t>(length))) << seed;
      ASSERT_EQ(view->offset_of(from), static_cast<std::uint64_t>(*begin));
    }
  }
}

TEST(View, IsOneRunWhereNothingIsLeftOut) {
  MPI_Datatype type{};
  MPI_Type_contiguous(7, MPI_INT, &type);
  const auto view = View::of(*type_map_of(type, kMost), 12);
  MPI_Type_free(&type);
  ASSERT_TRUE(view);
  EXPECT_TRUE(view->is_one_run());
  EXPECT_EQ(view->begin(), 12U);
}

TEST(View, IsOfNoTypeThatGoesBackOrOverlaps) {
  const int lengths[] = {1, 1};
  const int back[] = {2, 0};
  const int twice[] = {0, 0};
  for (const int* places : {back, twice}) {
    MPI_Datatype type{};
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type);
    EXPECT_FALSE(View::of(*type_map_of(type, kMost), 0));
    MPI_Type_free(&type);
  }
  MPI_Datatype pair{};
  MPI_Datatype short_of_it{};
  MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
  MPI_Type_create_resized(pair, 0, 8, &short_of_it);
  EXPECT_FALSE(View::of(*type_map_of(short_of_it, kMost), 0)) << "its tiles overlap";
  MPI_Type_free(&pair);
  MPI_Type_free(&short_of_it);
}

TEST(View, HasNoByteBeyondWhatAFileCanHold) {
  MPI_Datatype type{};
  MPI_Type_vector(2, 1, 2, MPI_INT, &type);
  const auto view = View::of(*type_map_of(type, kMost), 0);
  MPI_Type_free(&type);
  ASSERT_TRUE(view);
  EXPECT_TRUE(view->offset_of(INT64_MAX / 4));
  EXPECT_FALSE(view->offset_of(INT64_MAX - 7));
}

TEST(TypeMap, IsNotMadeOfMoreRunsThanAsked) {
  MPI_Datatype type{};
  MPI_Type_vector(101, 1, 2, MPI_INT, &type);
  EXPECT_TRUE(type_map_of(type, 101));
  EXPECT_FALSE(type_map_of(type, 100));
  MPI_Type_free(&type);
  // Nor is time spent on runs that join.
  MPI_Type_vector(1 << 30, 1, 1, MPI_BYTE, &type);
  EXPECT_FALSE(type_map_of(type, 100));
  MPI_Type_free(&type);
  // Nor room on an array's elements dealt out one by one.
  const int size = INT_MAX;
  const int kind = MPI_DISTRIBUTE_CYCLIC;
  const int block = 1;
  for (const int processes : {1, 2}) {
    MPI_Type_create_darray(processes, 0, 1, &size, &kind, &block, &processes, MPI_ORDER_C, MPI_BYTE,
                           &type);
    EXPECT_EQ(type_map_of(type, 100).has_value(), processes == 1);
    MPI_Type_free(&type);
  }
}

// Which part is whose is not defined then, and MPIs that take it place it otherwise than we do.
TEST(TypeMap, IsNotMadeOfAGridOfOtherProcessesThanThereAre) {
  const int sizes[] = {5, 5};
  const int kinds[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC};
  const int blocks[] = {3, 3};
  const int grid[] = {2, 2};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  for (const int processes : {4, 9}) {
    MPI_Datatype type{};
    if (MPI_Type_create_darray(processes, 1, 2, sizes, kinds, blocks, grid, MPI_ORDER_C, MPI_BYTE,
                               &type) != MPI_SUCCESS) {
      EXPECT_NE(processes, 4);
      continue;
    }
    EXPECT_EQ(type_map_of(type, kMost).has_value(), processes == 4);
    MPI_Type_free(&type);
  }
}

TEST(TypeMap, KnowsPairsByTheirNames) {
  const auto is_one = [](MPI_Datatype type) {
    char name[MPI_MAX_OBJECT_NAME] = {};
    int length = 0;
    MPI_Type_get_name(type, name, &length);
    return is_pair(name);
  };
  for (const MPI_Datatype pair : {MPI_2INT, MPI_LONG_INT, MPI_DOUBLE_INT, MPI_SHORT_INT}) {
    EXPECT_TRUE(is_one(pair));
  }
  for (const MPI_Datatype single : {MPI_INT, MPI_LONG_LONG, MPI_LONG_LONG_INT, MPI_UNSIGNED}) {
    EXPECT_FALSE(is_one(single));
  }
}

#ifdef MPICH
TEST(TypeMap, IsNotAskedOfATypeOfLargeCounts) {
  MPI_Datatype type{};
  MPI_Type_vector_c(3, 1, 2, MPI_INT, &type);
  EXPECT_FALSE(type_map_of(type, kMost));
  MPI_Type_free(&type);
}
#endif

}  // namespace
}  // namespace nvio

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  if (!nvio::find_mpi_functions([](const char* name) { return dlsym(RTLD_DEFAULT, name); })) {
    return 1;
  }
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
