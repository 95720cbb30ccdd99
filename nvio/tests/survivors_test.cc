// A process of a node is killed at any moment of a sync or a checkpoint, or is merely slow; what
// the others sync then must be there after a crash of all of them.
#include <sys/mman.h>
#include <sys/ptrace.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "../recovery/recover.h"
#include "cached_file_fixture.h"

namespace nvio {
namespace {

// A value that the test and its children see.
template <typename Value>
class Shared {
 public:
  Shared() {
    void* memory =
        mmap(nullptr, sizeof(Value), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    value_ = new (memory) Value{};
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { munmap(value_, sizeof(Value)); }
  Value& operator*() { return *value_; }

 private:
  Value* value_;
};

class SurvivorsTest : public CachedFileTest {
 protected:
  std::string recovered() {
    const RecoverReport report = recover(folder(), {});
    EXPECT_TRUE(report.good()) << describe(report, false);
    return file_content();
  }
};

bool any_block_is_dirty(Segment& segment) {
  for (std::uint32_t slot = 0; slot < segment.used_slots(); ++slot) {
    if (segment.slot(slot).dirty_pages != 0) return true;
  }
  return false;
}

// A write across two MiBs that makes the file longer: half of it is in the cache when somebody
// syncs. The writer's own sync must not take that half for logged.
TEST_F(SurvivorsTest, ASyncAmidstAWriteThatMakesTheFileLongerLosesNothingOfIt) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file, Session& session) {
    Bucket& second = session.segment().bucket_of(file.index(), 1);
    second.lock.lock();
    std::thread writer([&] { file.write(kGroupSize - 4, "12345678", 8); });
    while (!any_block_is_dirty(session.segment())) sched_yield();
    file.sync();
    second.lock.unlock();
    writer.join();
    file.sync();
  });
  EXPECT_TRUE(recovered() == std::string(kGroupSize - 4, '\0') + "12345678");
  ::close(fd);
}

constexpr std::uint64_t kCell = 1024;  // bytes: four lie in a page

void fill(CachedFile& file, std::uint64_t cell, char letter) {
  const std::string bytes(kCell, letter);
  ASSERT_EQ(file.write(cell * kCell, bytes.data(), kCell), static_cast<ssize_t>(kCell));
}

// A child that runs act(file), stopped before it.
class Victim {
 public:
  template <typename Act>
  Victim(const Settings& settings, const std::string& path, Act&& act) : child_(fork()) {
    if (child_ == 0) {
      std::string why;
      const auto session = Session::join(settings, why);
      const int fd = ::open(path.c_str(), O_RDWR);
      CachedFile* file = session == nullptr ? nullptr : session->acquire(fd, path, settings.file);
      if (file == nullptr || ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(3);
      raise(SIGSTOP);
      act(*file);
      _exit(0);
    }
    waitpid(child_, &status_, 0);
    EXPECT_TRUE(WIFSTOPPED(status_));
    ptrace(PTRACE_SETOPTIONS, child_, nullptr, PTRACE_O_EXITKILL);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  ~Victim() { kill(); }

  bool is_stopped() const { return WIFSTOPPED(status_); }
  // To its next stop, or its end.
  template <typename Request>
  void go_on(Request request) {
    if (is_stopped() && ptrace(request, child_, nullptr, nullptr) == 0) {
      waitpid(child_, &status_, 0);
    }
  }
  // False: it came to its end before.
  bool kill() {
    if (!is_stopped()) {
      EXPECT_TRUE(WIFEXITED(status_) && WEXITSTATUS(status_) == 0) << status_;
      return false;
    }
    ::kill(child_, SIGKILL);
    waitpid(child_, &status_, 0);
    status_ = 0;
    return true;
  }

 private:
  pid_t child_;
  int status_ = 0;
};

// Kills a victim at its `stops`th entry to or return from a system call, or the given number of
// instructions later. False: it came to its end before.
template <typename Act>
bool kill_amidst(const Settings& settings, const std::string& path, int stops, int instructions,
                 Act&& act) {
  Victim victim(settings, path, act);
  for (int i = 0; i < stops; ++i) victim.go_on(PTRACE_SYSCALL);
  for (int i = 0; i < instructions; ++i) victim.go_on(PTRACE_SINGLESTEP);
  return victim.kill();
}

// What the victim does: a sync that logs a page of its own and one it shares, and a checkpoint.
void write_sync_and_checkpoint(CachedFile& victim) {
  fill(victim, 2, 'v');
  fill(victim, 8, 'v');
  fill(victim, 9, 'v');
  victim.sync();
  fill(victim, 3, 'v');
  victim.checkpoint();
}

TEST_F(SurvivorsTest, LoseNothingTheySyncAfterOneOfThemWasKilledAnywhere) {
  // Every other stop is a return from a system call, after which what the others share is changed:
  // there the instructions that follow are gone through as well, two by two.
  constexpr int kInstructions = 120;
  int kills = 0;
  Shared<std::atomic<bool>> ended;
  for (int stops = 0; !*ended; ++stops) {
    const int most = stops % 2 == 1 ? kInstructions : 0;
    for (int instructions = 0; instructions <= most; instructions += 2) {
      fs::remove(path_);
      const int fd = open_file();
      be_killed_after(fd, [&](CachedFile& file) {
        for (std::uint64_t cell = 0; cell < 8; ++cell) fill(file, cell, 'a');
        file.sync();
        if (!kill_amidst(settings_, path_, stops, instructions, write_sync_and_checkpoint)) {
          *ended = true;
          return;
        }
        // One page changes, is written back and synced; another is synced only.
        fill(file, 8, 's');
        file.write_back();
        fill(file, 1, 's');
        file.sync();
        fill(file, 5, 's');
        file.sync();
      });
      ::close(fd);
      if (*ended) break;
      const std::string content = recovered();
      std::string cells;
      for (std::uint64_t cell = 0; cell * kCell < content.size(); ++cell) {
        cells += content[cell * kCell];
      }
      ASSERT_GE(cells.size(), 9U);
      EXPECT_EQ(cells.substr(0, 2), "as");
      EXPECT_NE(std::string("av").find(cells[2]), std::string::npos);
      EXPECT_NE(std::string("av").find(cells[3]), std::string::npos);
      EXPECT_EQ(cells.substr(4, 5), "asaas") << cells << " " << stops << "+" << instructions;
      if (HasFailure()) return;
      ++kills;
    }
  }
  EXPECT_GT(kills, 0);
}

// A victim may be killed at any of these instructions: the others' next sync must look for what it
// has changed by then. They hold nothing else that is to be logged.
TEST_F(SurvivorsTest, KnowOfEachChangeAtEachInstructionOfItsWriter) {
  const auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  fill(*file, 0, 'a');
  ASSERT_EQ(file->sync(), 0);
  ASSERT_EQ(file->entry().changes.load(), kSettled);
  Victim victim(settings_, path_, [](CachedFile& own) { fill(own, 1, 'v'); });
  Segment& segment = session->segment();
  bool has_changed = false;
  while (victim.is_stopped() && !HasFailure()) {
    victim.go_on(PTRACE_SINGLESTEP);
    for (std::uint32_t slot = 0; slot < segment.used_slots(); ++slot) {
      if (segment.slot(slot).unlogged_pages == 0) continue;
      has_changed = true;
      EXPECT_EQ(file->entry().changes.load(), kChanged);
    }
  }
  EXPECT_TRUE(has_changed);
  session->release(file);
  ::close(fd);
}

// Only who has seen the fsync succeed may say that the file needs none.
TEST_F(SurvivorsTest, MakeDurableAgainWhatAKilledOneWasAt) {
  const auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  Shared<std::atomic<bool>> shared;
  auto& is_synced = *shared;
  bool killed = true;
  for (int stops = 0; killed; ++stops) {
    fill(*file, 0, 'a');
    ASSERT_EQ(file->write_back(), 0);
    is_synced = false;
    killed = kill_amidst(settings_, path_, stops, 0, [&](CachedFile& victim) {
      victim.sync();
      is_synced = true;
    });
    EXPECT_EQ(file->entry().direct_writes.load() == kDurable, is_synced.load()) << stops;
  }
  EXPECT_TRUE(is_synced);
  session->release(file);
  ::close(fd);
}

// A process's random writes to cells of its own, with syncs, write-backs and reads among them, in a
// store smaller than the file. Another process can draw the same numbers again.
class History {
 public:
  static constexpr std::uint64_t kCells = 256;
  // Four cells are a page, and every page lies in a block of its own.
  static std::uint64_t offset_of(std::uint64_t cell) {
    return cell / 4 * kBlockSize + cell % 4 * kCell;
  }

  // Two players share every page: one has the even cells, the other the odd ones.
  History(std::uint64_t seed, std::uint64_t player) : random_(seed * 2 + player), player_(player) {}

  // One step. `file`: none when a step is only to be known. False: a read was wrong.
  bool step(CachedFile* file) {
    ++steps;
    const std::uint64_t what = random_() % 64;
    const std::uint64_t cell = random_() % (kCells / 2) * 2 + player_;
    const std::uint64_t offset = offset_of(cell);
    std::vector<std::uint32_t> words(kCell / sizeof steps, steps);
    if (what < 4) {
      return file == nullptr || file->sync() == 0;
    }
    if (what < 6) {
      return file == nullptr || file->write_back() == 0;
    }
    if (what == 6 && random_() % 16 == 0) {
      return file == nullptr || file->step_aside() == 0;
    }
    if (what < 20) {
      if (file == nullptr || writes[cell].empty()) return true;
      const auto got = file->read(offset, words.data(), kCell);
      return got == static_cast<ssize_t>(kCell) &&
             words == std::vector<std::uint32_t>(words.size(), writes[cell].back());
    }
    writes[cell].push_back(steps);
    return file == nullptr ||
           file->write(offset, words.data(), kCell) == static_cast<ssize_t>(kCell);
  }

  std::uint32_t steps = 0;
  std::map<std::uint64_t, std::vector<std::uint32_t>> writes;  // of a cell: the steps, ascending

 private:
  std::mt19937_64 random_;
  std::uint64_t player_;
};

// What a process that will be killed tells of itself, in memory that others see.
struct Told {
  std::atomic<std::uint32_t> synced;  // steps before the last sync that succeeded
  std::atomic<bool> read_wrong;
};

void play(CachedFile& file, History& history, int steps, Told& told) {
  for (int i = 0; i < steps; ++i) {
    if (!history.step(&file)) told.read_wrong = true;
    if (i % 16 == 15 && file.sync() == 0) told.synced = history.steps;
  }
}

// Each cell holds what it held at its player's last sync, or what that wrote later.
void check(const std::string& content, std::uint64_t seed, std::uint64_t player, const Told& told) {
  EXPECT_FALSE(told.read_wrong) << "player " << player << " of " << seed;
  History history(seed, player);
  while (history.steps < told.synced + 2000) history.step(nullptr);
  for (const auto& [cell, writes] : history.writes) {
    const auto later = std::upper_bound(writes.begin(), writes.end(), told.synced);
    if (later == writes.begin()) continue;
    std::vector<std::uint32_t> words(kCell / sizeof(std::uint32_t));
    const std::uint64_t offset = History::offset_of(cell);
    ASSERT_GE(content.size(), offset + kCell);
    std::memcpy(words.data(), content.data() + offset, kCell);
    for (const std::uint32_t word : words) {
      ASSERT_NE(std::find(later - 1, writes.end(), word), writes.end())
          << "seed " << seed << ": cell " << cell << " holds " << word << ", synced "
          << *(later - 1);
    }
  }
}

TEST_F(SurvivorsTest, HoldWhatEachLastSyncedUnderRandomHistories) {
  settings_.capacity = 1 << 20;
  for (std::uint64_t seed = 0; seed < 40 && !HasFailure(); ++seed) {
    fs::remove(path_);
    Shared<std::array<Told, 2>> shared;
    std::array<Told, 2>& told = *shared;
    std::mt19937_64 random(seed);
    const int fd = open_file();
    be_killed_after(fd, [&](CachedFile& file) {
      History history(seed, 0);
      play(file, history, 400, told[0]);
      const int stops = static_cast<int>(random() % 600);
      const int instructions = static_cast<int>(random() % 200);
      kill_amidst(settings_, path_, stops, instructions, [&](CachedFile& victim) {
        History own(seed, 1);
        play(victim, own, 1000, told[1]);
      });
      play(file, history, 200, told[0]);
    });
    ::close(fd);
    const std::string content = recovered();
    for (const std::uint64_t player : {0, 1}) check(content, seed, player, told[player]);
  }
}

}  // namespace
}  // namespace nvio
