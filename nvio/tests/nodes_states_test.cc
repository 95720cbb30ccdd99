// The way of a file into the cache of several nodes, and out of it, where one of them cannot follow
// at once.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <string>

#include "held_write.h"
#include "simulated_nodes.h"
#include "temporary_store.h"

namespace nvio {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::atomic<int> opened_anew{0};

int open_counted(const char* path, int flags, ...) {  // NOLINT(cert-dcl50-cpp): as open is
  if (std::string(path).starts_with("/proc/self/fd/") && flags == (O_RDWR | O_CLOEXEC)) {
    ++opened_anew;
  }
  return ::open(path, flags, 0600);
}

class NodesStatesTest : public ::testing::Test, protected TemporaryStore {
 protected:
  NodesStatesTest() : TemporaryStore("states") {}

  void SetUp() override {
    settings_.kind = StoreKind::file;
    settings_.capacity = 16 * kMiB;
    settings_.nodes = 3;
    settings_.quiet = true;
    std::ofstream(path_, std::ios::binary) << model_;
    nodes_.emplace(settings_, path_, 1);
    processes_.emplace(settings_, path_);
  }
  void TearDown() override {
    processes_->close();
    processes_.reset();
    nodes_.reset();
    std::ifstream left(path_, std::ios::binary);
    EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(left), {}) == model_);
  }

  // Every node writes a piece of every MiB, and reads what the one before it wrote.
  void write_everywhere(char byte) {
    constexpr std::uint64_t kPiece = 3000;
    for (std::uint64_t at = 0; at < 9 * kMiB; at += kMiB / 4) {
      const auto node = static_cast<std::uint32_t>(at * 7 / kMiB % 3);
      const std::string data(kPiece, byte);
      if (model_.size() < at + kPiece) model_.resize(at + kPiece);
      model_.replace(at, kPiece, data);
      EXPECT_EQ(processes_->on(node).write(at, data.data(), kPiece), static_cast<ssize_t>(kPiece));
      std::string got(kPiece, ' ');
      EXPECT_EQ(processes_->on((node + 1) % 3).read(at, got.data(), kPiece),
                static_cast<ssize_t>(kPiece));
      EXPECT_TRUE(got == data);
    }
  }

  Mode mode(std::uint32_t node) {
    return static_cast<Mode>(processes_->on(node).entry().mode.load());
  }

  void seem_slow() {
    for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
      FileEntry& entry = processes_->on(node).entry();
      entry.read_samples = entry.write_samples = 100;
      entry.slow_reads = entry.slow_writes = 1;
      entry.read_seconds = entry.write_seconds = 1e-3F;
    }
  }

  std::optional<SimulatedNodes> nodes_;
  std::optional<OneOnEachNode> processes_;
  std::string model_;
};

TEST_F(NodesStatesTest, APlainWriteThatLastsAtOneNodePutsTheCacheOffAndNotOut) {
  model_ = "held";
  HeldWrite held([&] { processes_->on(2).write(0, "held", 4); });
  seem_slow();
  write_everywhere('a');
  for (std::uint32_t node = 0; node < 3; ++node) EXPECT_NE(mode(node), kActive) << node;
  held.end();
  model_.replace(0, 4, "held");
  // Tried again after a time that is a multiple of what a try takes.
  for (int i = 0; i < 1000 && mode(0) != kActive; ++i) write_everywhere('b');
  write_everywhere('c');
  for (std::uint32_t node = 0; node < 3; ++node) EXPECT_EQ(mode(node), kActive) << node;
}

TEST_F(NodesStatesTest, WhoOpensTheFileDuringAPlainWriteThatLastsIsServed) {
  model_ = "held";
  HeldWrite held([&] { processes_->on(1).write(0, "held", 4); });
  seem_slow();
  write_everywhere('a');
  OneOnEachNode later(settings_, path_);
  char byte = 0;
  for (std::uint32_t node = 0; node < 3; ++node) {
    EXPECT_EQ(later.on(node).read(kMiB, &byte, 1), 1) << node;
    EXPECT_EQ(byte, 'a');
  }
  held.end();
  model_.replace(0, 4, "held");
  later.close();
}

TEST_F(NodesStatesTest, SteppingAsideDoesNotWaitForAPlainWriteThatLasts) {
  model_ = "held";
  HeldWrite held([&] { processes_->on(1).write(0, "held", 4); });
  EXPECT_EQ(processes_->on(0).step_aside(), 0);
  for (std::uint32_t node = 0; node < 3; ++node) EXPECT_TRUE(processes_->on(node).is_left());
  held.end();
}

// As NFS has it: what a client has written others see once it is flushed, and they have opened the
// file since.
TEST_F(NodesStatesTest,
       OnTheWayIntoTheCacheAndOutOfItEachNodeShowsTheOthersWhatItWroteAndLooksAnew) {
  const RealPosix* before = &real();
  RealPosix counting = *before;
  counting.open = open_counted;
  set_real(&counting);
  const auto write_all = [&](char byte) {
    for (std::uint32_t node = 0; node < 3; ++node) {
      model_.resize(std::max<std::size_t>(model_.size(), node * kMiB + 1));
      model_[node * kMiB] = byte;
      EXPECT_EQ(processes_->on(node).write(node * kMiB, &byte, 1), 1);
    }
  };
  write_all('p');
  EXPECT_EQ(nodes_->writers_of(0, 3 * kMiB).size(), 3U);
  opened_anew = 0;
  processes_->on(0).prefetch(0, 1);
  for (std::uint32_t node = 0; node < 3; ++node) EXPECT_EQ(mode(node), kActive) << node;
  EXPECT_TRUE(nodes_->writers_of(0, 3 * kMiB).empty());
  EXPECT_EQ(opened_anew, 3);
  write_all('c');
  EXPECT_EQ(processes_->on(0).step_aside(), 0);
  EXPECT_TRUE(nodes_->writers_of(0, 3 * kMiB).empty());
  EXPECT_EQ(opened_anew, 6);
  set_real(before);
}

class NodesFullFileTest : public NodesStatesTest {
 protected:
  NodesFullFileTest() { model_ = std::string(9 * kMiB, 'o'); }

  void SetUp() override {
    NodesStatesTest::SetUp();
    home_ = home_of(processes_->on(0).entry().inode, 3);
    next_ = (home_ + 1) % 3;
  }

  // Begins to cache; then a node that does not know the size makes the file longer, MiB by MiB.
  void make_longer() {
    char byte = 0;
    for (int i = 0; i < 1000 && mode(next_) != kActive; ++i) {
      EXPECT_GE(processes_->on(home_).read(0, &byte, 1), 0);
    }
    for (std::uint64_t at = kMiB; at < 7 * kMiB; at += kMiB) {
      model_.resize(at);
      model_ += 'w';
      EXPECT_EQ(processes_->on(next_).write(at, "w", 1), 1);
      for (std::uint32_t node = 0; node < 3; ++node) {
        EXPECT_EQ(processes_->on(node).size(), at + 1) << node;
        EXPECT_EQ(processes_->on(node).read(at, &byte, 1), 1) << node;
        EXPECT_EQ(processes_->on(node).read(at + 1, &byte, 1), 0) << node;
      }
    }
  }

  std::uint32_t home_ = 0, next_ = 0;
};

// As an MPI does it: by one rank, before calls have proved slow.
TEST_F(NodesFullFileTest, AFileCutByOneRankBeforeItIsCachedIsAsLongAsWhatIsWrittenAfterwards) {
  ASSERT_EQ(processes_->on(home_).truncate(0), 0);
  model_.clear();
  seem_slow();
  make_longer();
}

TEST_F(NodesFullFileTest, SoIsOneCutWhileSomeNodesAreOnTheWayIntoTheCache) {
  HeldWrite held([&] { processes_->on(next_).write(0, "held", 4); });
  seem_slow();
  EXPECT_EQ(processes_->on(home_).write(0, "way", 3), 3);
  EXPECT_EQ(processes_->on(next_).write((6 + next_) * kMiB, "w", 1), 1);  // a MiB of its own
  const std::uint32_t last = (home_ + 2) % 3;
  ASSERT_EQ(mode(next_), kDraining);
  ASSERT_EQ(mode(last), kPassive);
  ASSERT_EQ(processes_->on(last).truncate(0), 0);
  held.end();
  model_ = "held";
  make_longer();
}

// As if whoever led it had been killed when only the home node had stepped aside.
TEST_F(NodesStatesTest, AFileThatOneNodeHasLeftIsLeftByAll) {
  seem_slow();
  for (int i = 0; i < 1000 && mode(0) != kActive; ++i) write_everywhere('a');
  const std::uint32_t home = home_of(processes_->on(0).entry().inode, 3);
  ASSERT_EQ(processes_->on(home).cached().step_aside(), 0);
  for (int i = 0; i < 100000 && !processes_->on(home).is_left(); ++i) write_everywhere('b');
  for (std::uint32_t node = 0; node < 3; ++node) EXPECT_TRUE(processes_->on(node).is_left());
}

}  // namespace
}  // namespace nvio
