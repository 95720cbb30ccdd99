// Fetching ahead: a MiB is read from the file while others write, read, truncate, evict and leave.
// What is kept of it in the end must be what the file has, or what the program was shown since.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cached_file_fixture.h"
#include "held_fetch.h"

namespace nvio {
namespace {

constexpr std::uint64_t kPiece = 5000;  // bytes, no multiple of a page
constexpr std::uint64_t kAt = 3 * kBlockSize + 123;

class AheadTest : public CachedFileTest {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    settings_.fetch_ahead = 1;
    settings_.file.admit = Admit::automatic;
    fd_ = open_file();
    const std::string old(kGroupSize, 'o');
    ASSERT_EQ(::pwrite(fd_, old.data(), old.size(), 0), static_cast<ssize_t>(old.size()));
    session_ = join();
    file_ = session_->acquire(fd_, path_, settings_.file);
    file_->entry().mode.store(kActive);
  }

  void TearDown() override {
    if (file_ != nullptr) EXPECT_EQ(session_->release(file_), 0);
    ::close(fd_);
  }

  std::string read_all() {
    std::string bytes(kGroupSize, '?');
    const ssize_t got = file_->read(0, bytes.data(), bytes.size());
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
  }

  void write(char with) {
    const std::string piece(kPiece, with);
    ASSERT_EQ(file_->write(kAt, piece.data(), kPiece), static_cast<ssize_t>(kPiece));
  }

  void write_as_another_job(char with) {
    const std::string piece(kPiece, with);
    ASSERT_EQ(::pwrite(fd_, piece.data(), kPiece, kAt), static_cast<ssize_t>(kPiece));
  }

  // Makes small transfers of the file seem slow.
  void seem_slow(Direction direction) {
    FileEntry& entry = file_->entry();
    const bool is_read = direction == Direction::read;
    (is_read ? entry.read_samples : entry.write_samples).store(100);
    (is_read ? entry.slow_reads : entry.slow_writes).store(1);
    (is_read ? entry.read_seconds : entry.write_seconds).store(1e-3F);
  }

  // A dirty block, which keeps the group in the table whatever else is evicted.
  void dirty_another_block() {
    seem_slow(Direction::write);
    const char byte = 'd';
    ASSERT_EQ(file_->write(9 * kBlockSize, &byte, 1), 1);
  }

  void evict_but_another_block() {
    while (session_->drop_clean()) {
    }
    ASSERT_EQ(file_->entry().blocks.load(), 1U);
  }

  int fd_ = -1;
  std::unique_ptr<Session> session_;
  CachedFile* file_ = nullptr;
};

TEST_F(AheadTest, WhatNobodyTouchedIsKept) {
  EXPECT_TRUE(file_->fetch_ahead(0));
  EXPECT_EQ(read_all(), std::string(kGroupSize, 'o'));
  EXPECT_EQ(session_->counters().read_hits.load(), 1U);
  EXPECT_EQ(session_->counters().fetches_ahead.load(), 1U);
  EXPECT_EQ(session_->counters().ahead_dropped_bytes.load(), 0U);
}

TEST_F(AheadTest, WhatIsThereIsNotFetchedAgain) {
  EXPECT_TRUE(file_->fetch_ahead(0));
  EXPECT_FALSE(file_->fetch_ahead(0));
  EXPECT_EQ(session_->counters().fetches.load(), 1U);
}

TEST_F(AheadTest, NothingIsFetchedIntoAFileThatIsLeftOrPlain) {
  file_->entry().mode.store(kPassive);
  EXPECT_FALSE(file_->fetch_ahead(0));
  EXPECT_EQ(file_->entry().blocks.load(), 0U);
}

TEST_F(AheadTest, NobodyWaitsForIt) {
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  write('n');  // hangs where the bucket's lock is held
  EXPECT_EQ(read_all().substr(kAt, kPiece), std::string(kPiece, 'n'));
  EXPECT_FALSE(file_->fetch_ahead(0)) << "the node's only place is taken";
}

TEST_F(AheadTest, AWritePastTheCacheIsNotOverwritten) {
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  write('n');
  ASSERT_EQ(file_->entry().blocks.load(), 0U);
  fetch.end();
  EXPECT_EQ(read_all(), file_content());
  EXPECT_GE(session_->counters().ahead_dropped_bytes.load(), kPiece);
}

TEST_F(AheadTest, AWriteIntoTheCacheIsNotOverwritten) {
  seem_slow(Direction::write);
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  write('n');
  ASSERT_EQ(file_->entry().blocks.load(), 1U);
  fetch.end();
  EXPECT_EQ(read_all().substr(kAt, kPiece), std::string(kPiece, 'n'));
  EXPECT_EQ(file_->write_back(), 0);
  EXPECT_EQ(read_all(), file_content());
}

TEST_F(AheadTest, WhatIsWrittenBackAndEvictedMeanwhileIsNotOlderAfterwards) {
  seem_slow(Direction::write);
  write('n');  // before the fetch, which finds the file without it
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  EXPECT_EQ(file_->write_back(), 0);
  dirty_another_block();
  evict_but_another_block();
  fetch.end();
  EXPECT_EQ(file_->write_back(), 0);
  EXPECT_EQ(read_all(), file_content());
  EXPECT_EQ(read_all().substr(kAt, kPiece), std::string(kPiece, 'n'));
}

TEST_F(AheadTest, AWindowIsNotOverwritten) {
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  std::string window(kPiece, '?');
  write_as_another_job('j');
  ASSERT_EQ(file_->read_window(kAt, window.data(), kPiece), static_cast<ssize_t>(kPiece));
  EXPECT_EQ(window, std::string(kPiece, 'j'));
  const std::string written(100, 'w');
  ASSERT_EQ(file_->write_window(10, written.data(), written.size()), 100);
  fetch.end();
  EXPECT_EQ(read_all(), file_content());
}

TEST_F(AheadTest, AReadIsNotFollowedByWhatTheFileHadEarlier) {
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  write_as_another_job('j');
  std::string seen(kPiece, '?');
  ASSERT_EQ(file_->read(kAt, seen.data(), kPiece), static_cast<ssize_t>(kPiece));
  ASSERT_EQ(seen, std::string(kPiece, 'j'));
  fetch.end();
  ASSERT_EQ(file_->read(kAt, seen.data(), kPiece), static_cast<ssize_t>(kPiece));
  EXPECT_EQ(seen, std::string(kPiece, 'j'));
}

TEST_F(AheadTest, TruncatedBytesDoNotComeBack) {
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  EXPECT_EQ(file_->truncate(1000), 0);
  EXPECT_EQ(file_->truncate(kGroupSize), 0);
  fetch.end();
  EXPECT_EQ(read_all(), file_content());
  EXPECT_EQ(read_all().substr(kAt, kPiece), std::string(kPiece, '\0'));
}

TEST_F(AheadTest, WhatIsForgottenMeanwhileIsForgotten) {
  dirty_another_block();
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  write_as_another_job('j');
  file_->forget(CachedFile::Forget::written);
  fetch.end();
  EXPECT_EQ(file_->write_back(), 0);
  EXPECT_EQ(read_all(), file_content());
  EXPECT_EQ(session_->counters().ahead_dropped_bytes.load(), kGroupSize);
}

TEST_F(AheadTest, ALaterFetchIsNotOverwritten) {
  dirty_another_block();
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  write_as_another_job('j');
  EXPECT_TRUE(file_->prefetch_group(0));
  evict_but_another_block();
  fetch.end();
  EXPECT_EQ(file_->write_back(), 0);
  EXPECT_EQ(read_all(), file_content());
}

TEST_F(AheadTest, AFileThatIsLeftMeanwhileStaysLeft) {
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  EXPECT_EQ(file_->step_aside(), 0);
  write('n');
  fetch.end();
  EXPECT_EQ(file_->entry().blocks.load(), 0U);
  EXPECT_EQ(read_all(), file_content());
}

TEST_F(AheadTest, ItsSlotsAreGivenBack) {
  for (int i = 0; i < 100; ++i) {  // many more than the store has
    HeldFetch fetch([this] { file_->fetch_ahead(0); });
    file_->forget(CachedFile::Forget::all);
  }
  EXPECT_TRUE(file_->fetch_ahead(0));
}

TEST_F(AheadTest, ThePieceThatItLeftOutIsReadOnceAndKept) {
  seem_slow(Direction::read);
  HeldFetch fetch([this] { file_->fetch_ahead(0); });
  write('n');
  fetch.end();
  std::string seen(100, '?');
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(file_->read(kAt, seen.data(), seen.size()), 100);
    EXPECT_EQ(seen, std::string(100, 'n'));
  }
  EXPECT_EQ(session_->counters().reads_direct.load(), 1U);
  EXPECT_EQ(session_->counters().fetches.load(), 1U);
}

TEST_F(AheadTest, AMissOfASlowFileHasItFetched) {
  seem_slow(Direction::read);
  char byte = 0;
  ASSERT_EQ(file_->read(10, &byte, 1), 1);
  for (std::uint64_t at = 2 * kBlockSize; session_->counters().fetches_ahead.load() == 0;) {
    ASSERT_EQ(file_->read(at, &byte, 1), 1);
    at = (at + 7 * kPageSize) % kGroupSize;
  }
  EXPECT_EQ(session_->counters().fetches.load(), session_->counters().fetches_ahead.load());
}

TEST_F(AheadTest, AKilledProcessKeepsNobodyFromFetching) {
  be_killed_after(fd_, [](CachedFile& file) {
    file.entry().mode.store(kActive);
    static RealPosix wrapped = real();
    wrapped.preadv = [](int, const iovec*, int, off_t) -> ssize_t {
      kill(getpid(), SIGKILL);
      return -1;
    };
    set_real(&wrapped);
    file.fetch_ahead(0);
  });
  ASSERT_NE(session_->segment().group(0).ahead, 0U) << "it was killed too early to show anything";
  EXPECT_EQ(read_all(), file_content());
  EXPECT_TRUE(file_->fetch_ahead(0));
  EXPECT_EQ(read_all(), file_content());
}

}  // namespace
}  // namespace nvio
