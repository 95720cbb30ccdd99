// Random histories over several nodes, stopped at any store: whatever became of the nodes, the
// stores that are left give every byte that was synced, or one written to its place later.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "../nodes/placement.h"
#include "../recovery/recover.h"
#include "../store/segment.h"
#include "simulated_nodes.h"
#include "temporary_store.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;

// Each MiB of the file is written in one window only, over the border of two blocks, so that there
// are more blocks than a store has room for, and little to compare.
constexpr std::uint64_t kGroupsANode = 12;
constexpr std::uint64_t kWindow = 2 * kPageSize;
constexpr std::uint64_t kWindowStart = kBlockSize - kPageSize;
constexpr std::uint64_t kBypassSize = 5000;  // some writes go round the cache

// What a byte may be after a crash.
struct Byte {
  std::bitset<256> allowed{1};  // as last synced, and all that was written to it since
  std::bitset<256> ever{1};     // all that was ever written to it
  std::uint8_t now = 0;
};

// The windows' bytes in a row, and the file's size.
struct Image {
  std::string bytes;
  std::uint64_t size = 0;
  bool operator==(const Image&) const = default;
};

class History : TemporaryStore {
 public:
  History(std::uint32_t nodes, std::uint64_t seed, int interrupts)
      : TemporaryStore("crash", "/dev/shm"), random_(seed), interrupts_(interrupts) {
    settings_.kind = StoreKind::file;
    settings_.capacity = kGroupSize;
    settings_.nodes = nodes;
    settings_.connections = seed % 5 < 2 ? Connections::relayed : Connections::direct;
    settings_.quiet = true;
    settings_.file.admit = Admit::always;
    settings_.file.bypass_size = kBypassSize;
    settings_.file.sync = seed % 3 == 2 ? SyncTo::file : SyncTo::store;
    settings_.file.spread = seed % 2 == 0 ? Spread::striped : Spread::parts;
    settings_.file.stripe = seed % 4 < 2 ? 0 : 2 * kGroupSize;
    shares_.unit = seed % 4 < 2 ? 1 : 2;
    groups_ = kGroupsANode * nodes;
    bytes_.resize(groups_ * kWindow);
    wrote_.assign(nodes, std::vector<bool>(nodes));
    std::ofstream made(path_);
    if (seed % 2 == 1) {
      fs::resize_file(path_, groups_ * kGroupSize);
      size_ = groups_ * kGroupSize;
      if (settings_.file.spread == Spread::parts) {
        shares_.part = equal_part(size_, shares_.unit, nodes);
      }
      largest_ = size_;
    }
  }

  // Returns how many crash points were looked at.
  int run(int steps) {
    SimulatedNodes nodes(settings_, path_, random_());
    std::optional<OneOnEachNode> processes(std::in_place, settings_, path_);
    nodes.interrupt_every(interrupts_, [&] { look(nodes); });
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      const auto node = static_cast<std::uint32_t>(random_() % settings_.nodes);
      step(processes->on(node), node);
    }
    processes->close();
    processes.reset();
    const Image left = read();
    EXPECT_EQ(left.size, size_);
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (static_cast<std::uint8_t>(left.bytes[i]) == bytes_[i].now) continue;
      ADD_FAILURE() << "byte " << i << " after closing";
      break;
    }
    return points_;
  }

 private:
  void step(JobFile& file, std::uint32_t node) {
    const std::uint64_t group = random_() % groups_;
    const std::uint64_t from = random_() % kWindow;
    const std::uint64_t length =
        1 + random_() % std::min<std::uint64_t>(kWindow - from, random_() % 8 == 0 ? kWindow : 700);
    const std::uint64_t offset = group * kGroupSize + kWindowStart + from;
    const std::size_t first = group * kWindow + from;
    const auto what = random_() % 100;
    if (what < 65) {
      const auto value = static_cast<std::uint8_t>(1 + random_() % 255);
      for (std::size_t i = first; i < first + length; ++i) may_be(bytes_[i], value);
      largest_ = std::max(largest_, offset + length);
      wrote_[node][owner_of(group, shares_, settings_.nodes)] = true;
      const std::string data(length, static_cast<char>(value));
      // What a manager takes is written beside this thread, which has to wait before it goes on.
      const bool is_queued = random_() % 6 == 0;
      ASSERT_EQ(is_queued ? file.hand_over(offset, data.data(), length)
                          : file.write(offset, data.data(), length),
                static_cast<ssize_t>(length));
      if (is_queued) ASSERT_EQ(file.sync(), 0);
      for (std::size_t i = first; i < first + length; ++i) bytes_[i].now = value;
      size_ = std::max(size_, offset + length);
      if (is_queued) synced(node);
    } else if (what < 78) {
      std::string got(length, 'x');
      const std::uint64_t there = std::min(length, size_ - std::min(size_, offset));
      ASSERT_EQ(file.read(offset, got.data(), length), static_cast<ssize_t>(there));
      for (std::uint64_t i = 0; i < there; ++i) {
        ASSERT_EQ(static_cast<std::uint8_t>(got[i]), bytes_[first + i].now) << "byte " << first + i;
      }
    } else if (what < 93) {
      ASSERT_EQ(file.sync(), 0);
      synced(node);
    } else if (what < 98) {
      ASSERT_EQ(file.write_back(), 0);
    } else {
      const std::uint64_t size = random_() % 4 == 0 ? offset : size_ - random_() % (1 + size_ / 8);
      cut_at(size, [](Byte& byte) { may_be(byte, 0); });
      largest_ = std::max(largest_, size);
      ASSERT_EQ(file.truncate(size), 0);
      cut_at(size, [](Byte& byte) { byte.now = 0; });
      size_ = size;
      wrote_[node].assign(settings_.nodes, true);
    }
  }

  static void may_be(Byte& byte, std::uint8_t value) {
    byte.allowed.set(value);
    byte.ever.set(value);
  }

  // A sync makes safe what its own node and those that its process wrote to hold.
  void synced(std::uint32_t node) {
    wrote_[node][node] = true;
    for (std::uint64_t group = 0; group < groups_; ++group) {
      if (!wrote_[node][owner_of(group, shares_, settings_.nodes)]) continue;
      for (std::size_t i = group * kWindow; i < (group + 1) * kWindow; ++i) {
        bytes_[i].allowed.reset();
        bytes_[i].allowed.set(bytes_[i].now);
      }
    }
    if (std::all_of(wrote_[node].begin(), wrote_[node].end(), [](bool wrote) { return wrote; })) {
      largest_ = size_;
    }
    wrote_[node].assign(settings_.nodes, false);
  }

  template <typename Act>
  void cut_at(std::uint64_t size, Act&& act) {
    for (std::uint64_t group = 0; group < groups_; ++group) {
      const std::uint64_t start = group * kGroupSize + kWindowStart;
      for (std::uint64_t i = size > start ? size - start : 0; i < kWindow; ++i) {
        act(bytes_[group * kWindow + i]);
      }
    }
  }

  [[nodiscard]] Image read() const {
    Image image{std::string(bytes_.size(), '\0'), fs::file_size(path_)};
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    for (std::uint64_t group = 0; group < groups_; ++group) {
      EXPECT_GE(pread(fd, image.bytes.data() + group * kWindow, kWindow,
                      static_cast<off_t>(group * kGroupSize + kWindowStart)),
                0);
    }
    close(fd);
    return image;
  }

  void put_back(const Image& image) const {
    const int fd = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    for (std::uint64_t group = 0; group < groups_; ++group) {
      EXPECT_EQ(pwrite(fd, image.bytes.data() + group * kWindow, kWindow,
                       static_cast<off_t>(group * kGroupSize + kWindowStart)),
                static_cast<ssize_t>(kWindow));
    }
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(image.size)), 0);
    close(fd);
  }

  // All nodes restart; or one does while the others' processes are killed; or one is lost.
  std::vector<Fate> draw_fates() {
    const auto kind = random_() % 4;
    std::vector<Fate> fates(settings_.nodes, kind < 2 ? Fate::restarted : Fate::ended);
    if (kind != 0) {
      fates[random_() % fates.size()] = kind == 2 ? Fate::restarted : Fate::lost;
    }
    return fates;
  }

  // The job is stopped here: what would be left is recovered and compared, and the job goes on.
  void look(SimulatedNodes& nodes) {
    if (::testing::Test::HasFailure()) return;
    ++points_;
    const Image before = read();
    const std::vector<Fate> fates = draw_fates();
    std::vector<std::string> stores = nodes.stop(fates, root_ + "/left");
    std::shuffle(stores.begin(), stores.end(), random_);
    RecoverOptions options;
    options.keep = true;
    for (const std::string& store : stores) {
      const RecoverReport report = recover(store, options);
      EXPECT_TRUE(report.good()) << describe(report, false);
    }
    const Image once = read();
    check(once, fates);
    // Again, in another order, as by an epilog that runs on each node when it is up again.
    std::shuffle(stores.begin(), stores.end(), random_);
    for (const std::string& store : stores) EXPECT_TRUE(recover(store, {}).removed);
    EXPECT_TRUE(read() == once) << "recovered twice, it is another file, at point " << points_;
    fs::remove_all(root_ + "/left");
    put_back(before);
  }

  void check(const Image& image, const std::vector<Fate>& fates) {
    EXPECT_LE(image.size, largest_) << "point " << points_;
    for (std::uint64_t group = 0; group < groups_; ++group) {
      const bool only_in_store = fates[owner_of(group, shares_, settings_.nodes)] == Fate::lost &&
                                 settings_.file.sync == SyncTo::store;
      for (std::size_t i = group * kWindow; i < (group + 1) * kWindow; ++i) {
        const auto found = static_cast<std::uint8_t>(image.bytes[i]);
        if ((only_in_store ? bytes_[i].ever : bytes_[i].allowed).test(found)) continue;
        ADD_FAILURE() << "point " << points_ << ": byte " << i % kWindow << " of the window of MiB "
                      << group << " is " << int{found} << ", was " << int{bytes_[i].now}
                      << ", may be " << bytes_[i].allowed.count() << " values";
        return;
      }
    }
  }

  std::mt19937_64 random_;
  int interrupts_;
  std::uint64_t groups_ = 0;
  Shares shares_{0, 1};
  std::vector<Byte> bytes_;
  std::vector<std::vector<bool>> wrote_;  // since its last sync: by process, to node
  std::uint64_t size_ = 0;
  std::uint64_t largest_ = 0;  // that the file may be
  int points_ = 0;
};

void crash_at(std::uint32_t nodes) {
  const char* wanted = std::getenv("NVIO_CRASH_POINTS");
  const int points = wanted != nullptr ? std::atoi(wanted) : 300;
  constexpr int kSteps = 400;
  constexpr int kInterrupts = 60;  // stores between two looks
  int looked_at = 0;
  for (std::uint64_t seed = 0; looked_at < points && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    looked_at += History(nodes, seed, kInterrupts).run(kSteps);
  }
  ::testing::Test::RecordProperty("points", looked_at);
}

TEST(NodesCrash, LeavesWhatWasSyncedAtEveryCrashPointOfTwoNodes) { crash_at(2); }

TEST(NodesCrash, LeavesWhatWasSyncedAtEveryCrashPointOfFourNodes) { crash_at(4); }

}  // namespace
}  // namespace nvio
