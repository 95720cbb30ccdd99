// The redo log: what it writes is what the format says, and what a crash leaves is the last sync.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "../log/reader.h"
#include "../medium/simulated_medium.h"
#include "../system/crc32c.h"

namespace nvio {
namespace {

using Bytes = std::vector<std::byte>;

ParsedLog read_log(std::span<const std::byte> bytes) { return LogReader(bytes).parse(); }

Bytes redo(std::span<const std::byte> bytes, Bytes file) {
  LogReader reader(bytes);
  const ParsedLog log = reader.parse();
  const bool done = reader.replay(log, [&](std::uint64_t offset, std::span<const std::byte> piece) {
    if (file.size() < offset + piece.size()) file.resize(offset + piece.size());
    std::copy(piece.begin(), piece.end(), file.begin() + static_cast<std::ptrdiff_t>(offset));
  });
  EXPECT_TRUE(done);
  if (log.syncs != 0 && file.size() < log.file_size) file.resize(log.file_size);
  return file;
}

TEST(Crc32c, KnowsTheStandardsCheckValue) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
  EXPECT_EQ(crc32c_by_table("123456789", 9), 0xE3069283U);
}

TEST(Crc32c, IsTheSameByInstructionAndByTable) {
  std::mt19937_64 random(1);
  for (std::size_t length = 0; length < 200; ++length) {
    std::vector<unsigned char> bytes(length);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    EXPECT_EQ(crc32c(bytes.data(), length, 7), crc32c_by_table(bytes.data(), length, 7));
  }
}

// The log of testdata/nvio/two_syncs.redo: epoch 1, two syncs, then an extent without a commit.
std::vector<std::byte> golden_log() {
  SimulatedMedium medium(1 << 20);
  LogPosition position;
  LogWriter writer(medium, position);
  writer.start({66, 4711, "/scratch/result.dat", false});
  writer.extent(0, "first", 5);
  writer.commit(5);
  writer.extent(4096, "second sync", 11);
  writer.commit(5000);
  writer.extent(8, "lost", 4);
  const auto end = static_cast<std::ptrdiff_t>(position.tail);
  writer.commit(5000);  // hands the extent on to the medium; itself it does not arrive
  const auto content = medium.content();
  return {content.begin(), content.begin() + end};
}

TEST(RedoLog, WritesTheGoldenBytes) {
  const std::string path = NVIO_TESTDATA "/two_syncs.redo";
  const Bytes written = golden_log();
  if (std::getenv("NVIO_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(written.data()),
               static_cast<std::streamsize>(written.size()));
  }
  std::ifstream file(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  ASSERT_EQ(golden.size(), written.size());
  EXPECT_EQ(std::memcmp(golden.data(), written.data(), golden.size()), 0);
}

TEST(RedoLog, ReadsWhatTheFormatPageSaysOfTheGoldenBytes) {
  const Bytes bytes = golden_log();
  const ParsedLog log = read_log(bytes);
  ASSERT_TRUE(log.usable) << log.why;
  EXPECT_EQ(log.file.path, "/scratch/result.dat");
  EXPECT_EQ(log.file.inode, 4711U);
  EXPECT_EQ(log.syncs, 2U);
  EXPECT_EQ(log.file_size, 5000U);
  EXPECT_EQ(log.bytes, 16U);
  EXPECT_EQ(log.unfinished, 1U);
  EXPECT_EQ(redo(bytes, {}).size(), 5000U);
}

TEST(RedoLog, RefusesForeignBytesWithASentence) {
  const Bytes empty;
  EXPECT_FALSE(read_log(empty).usable);
  const Bytes zeros(100000);
  EXPECT_FALSE(read_log(zeros).usable);
  EXPECT_NE(read_log(zeros).why, "");
}

// What a job leaves that ends in its first sync: no damage, and nothing to replay.
TEST(RedoLog, KnowsOneThatWasNeverStartedFromADamagedOne) {
  EXPECT_TRUE(read_log(Bytes{}).never_started);
  SimulatedMedium medium(1 << 20);
  LogPosition position;
  LogWriter(medium, position).start({66, 4711, "/scratch/result.dat", false});
  const auto content = medium.content();
  const Bytes whole(content.begin(), content.end());
  Bytes torn = whole;
  std::fill(torn.begin() + kFirstRecord - 512, torn.begin() + kFirstRecord, std::byte{});
  EXPECT_FALSE(read_log(torn).usable);
  EXPECT_TRUE(read_log(torn).never_started);
  Bytes damaged = golden_log();
  damaged[kSuperblockSize] ^= std::byte{1};
  EXPECT_FALSE(read_log(damaged).usable);
  EXPECT_FALSE(read_log(damaged).never_started);
}

TEST(RedoLog, TakesNoDamagedByteForData) {
  const Bytes good = golden_log();
  const Bytes want = redo(good, {});
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    Bytes bytes = good;
    bytes[random() % bytes.size()] ^= std::byte(1U << random() % 8);
    const ParsedLog log = read_log(bytes);
    if (!log.usable) continue;
    // A prefix of the syncs, whole, or all of them.
    const Bytes got = redo(bytes, {});
    EXPECT_TRUE(log.syncs == 0 || log.syncs == 1 || got == want);
  }
}

// What a process that died in its sync had appended is written over by the next sync; its tail may
// line up with the new records, and must not be taken for a part of them.
TEST(RedoLog, DoesNotContinueIntoADeadProcessesRecords) {
  SimulatedMedium medium(1 << 20);
  LogPosition published;
  LogWriter(medium, published).start({1, 2, "/f", false});
  const LogPosition before = published;
  LogPosition dead = before;
  LogWriter dying(medium, dead);
  for (int i = 0; i < 10; ++i) dying.extent(static_cast<std::uint64_t>(i) * 8, "deaddead", 8);
  dying.commit(80);  // durable, but it died before it could publish the position
  LogPosition next = before;
  LogWriter living(medium, next);
  living.extent(0, "livelive", 8);
  living.commit(8);
  const ParsedLog log = read_log(medium.content());
  EXPECT_EQ(log.syncs, 1U);
  EXPECT_EQ(log.bytes, 8U);
  EXPECT_EQ(log.unfinished, 0U);
}

// Room that comes too late does not make up for records that found none.
class FullMedium : public SimulatedMedium {
 public:
  using SimulatedMedium::SimulatedMedium;
  int reserve(std::uint64_t size) override {
    if (size <= kFirstRecord || has_room) return SimulatedMedium::reserve(size);
    ++refused;
    return ENOSPC;
  }
  bool has_room = false;
  int refused = 0;
};

TEST(RedoLog, GathersNothingMoreOnceItFoundNoRoom) {
  FullMedium medium(16 << 20);
  LogPosition position;
  LogWriter writer(medium, position);
  ASSERT_EQ(writer.start({1, 2, "/f", false}), 0);
  const std::vector<char> bytes(1 << 20);
  EXPECT_EQ(writer.extent(0, bytes.data(), bytes.size()), ENOSPC);
  const int refused = medium.refused;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(writer.extent(0, bytes.data(), bytes.size()), ENOSPC);
  EXPECT_EQ(medium.refused, refused);
  medium.has_room = true;
  EXPECT_EQ(writer.commit(1), ENOSPC) << "its records are missing";
  EXPECT_EQ(read_log(medium.content()).syncs, 0U);
}

// Random histories of writes, syncs and checkpoints; the machine stops after a random line, a
// random subset of unflushed lines survives, and recovery must give exactly the state of a sync:
// the last that completed, or the one that was under way.
TEST(RedoLog, LeavesTheLastSyncAtEveryCrashPoint) {
  const char* wanted = std::getenv("NVIO_CRASH_POINTS");
  const int points = wanted != nullptr ? std::atoi(wanted) : 2000;
  std::mt19937_64 random(20170621);
  int in_sync = 0;
  int in_checkpoint = 0;
  for (int point = 0; point < points; ++point) {
    SimulatedMedium medium(1 << 22);
    LogPosition position;
    LogWriter writer(medium, position);
    const FileIdentity file{1, 2, "/scratch/f", false};
    Bytes synced;     // what the last completed sync promised
    Bytes promising;  // what the one under way will
    Bytes on_disk;    // the file system's content: grows at checkpoints only
    Bytes current;
    std::uint64_t lines = 0;
    {
      // A first run without a crash tells how many lines there are to stop at.
      lines = 40 + random() % 4000;
    }
    medium.stop_after(lines);
    bool failed = writer.start(file) != 0;
    bool checkpointing = false;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> dirty;
    while (!failed && !medium.stopped()) {
      const auto what = random() % 20;
      if (what < 15) {
        const std::uint64_t offset = random() % 5000;
        const std::uint64_t length = 1 + random() % 700;
        if (current.size() < offset + length) current.resize(offset + length);
        for (std::uint64_t i = 0; i < length; ++i) current[offset + i] = std::byte(random());
        dirty.emplace_back(offset, length);
      } else if (what < 19) {
        promising = current;
        LogPosition attempt = position;
        LogWriter syncing(medium, attempt);
        for (const auto& [offset, length] : dirty) {
          failed = failed || syncing.extent(offset, current.data() + offset, length) != 0;
        }
        failed = failed || syncing.commit(current.size()) != 0;
        if (failed) {
          ++in_sync;
          break;
        }
        position = attempt;
        dirty.clear();
        synced = promising;
      } else {
        // The flush intent, the file itself, then the new epoch.
        promising = synced;
        checkpointing = true;
        failed = writer.mark(LogState::flushing, file) != 0;
        if (!failed) {
          on_disk = current;
          promising = current;
          failed = writer.start(file) != 0;
        }
        if (failed) {
          ++in_checkpoint;
          break;
        }
        checkpointing = false;
        synced = promising = current;
        dirty.clear();
      }
    }
    const Bytes left = medium.crash(random);
    const ParsedLog log = read_log(left);
    Bytes rebuilt = log.usable ? redo(left, on_disk) : on_disk;
    const Bytes again = log.usable ? redo(left, rebuilt) : rebuilt;
    EXPECT_EQ(rebuilt, again) << "not idempotent at point " << point;
    if (checkpointing) {
      // The file was written with newer bytes: each byte is that of the sync or of the flush.
      for (std::size_t i = 0; i < rebuilt.size(); ++i) {
        const bool old = i < synced.size() && rebuilt[i] == synced[i];
        const bool fresh = i < current.size() && rebuilt[i] == current[i];
        ASSERT_TRUE(old || fresh) << "point " << point << " byte " << i;
      }
    } else {
      ASSERT_TRUE(rebuilt == synced || rebuilt == promising) << "point " << point;
    }
  }
  RecordProperty("points", points);
  RecordProperty("in_sync", in_sync);
  RecordProperty("in_checkpoint", in_checkpoint);
  EXPECT_GT(in_sync, points / 10);
  EXPECT_GT(in_checkpoint, 0);
}

}  // namespace
}  // namespace nvio
