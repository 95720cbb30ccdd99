// Another job writes the bytes between this one's: whatever nvio does, they stay as that one left
// them.
#include <sys/stat.h>

#include <cstring>

#include "../recovery/recover.h"
#include "cached_file_fixture.h"

namespace nvio {
namespace {

constexpr std::uint64_t kStride = 3000;  // pieces and gaps that know no page
constexpr std::size_t kOurs = 1000;      // bytes of each stride
constexpr std::uint64_t kFileSize = 699 * kStride;

class NeighboursTest : public CachedFileTest {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    settings_.capacity = 8 << 20;
    std::ofstream(path_, std::ios::binary) << std::string(kFileSize, 'a');
    fd_ = open_file();
  }
  void TearDown() override {
    ::close(fd_);
    CachedFileTest::TearDown();
  }

  static void write_pieces(CachedFile& file, char value) {
    const std::string piece(kOurs, value);
    for (std::uint64_t at = 0; at < kFileSize; at += kStride) {
      ASSERT_EQ(file.write(at, piece.data(), kOurs), static_cast<ssize_t>(kOurs));
    }
  }

  void neighbour_writes(char value) {
    const std::string gap(kStride - kOurs, value);
    for (std::uint64_t at = kOurs; at < kFileSize; at += kStride) {
      ASSERT_EQ(pwrite(fd_, gap.data(), gap.size(), static_cast<off_t>(at)),
                static_cast<ssize_t>(gap.size()));
    }
  }

  // What it should hold, with these values in our pieces and in the gaps.
  static std::string wanted(char ours, char theirs) {
    std::string bytes(kFileSize, theirs);
    for (std::uint64_t at = 0; at < kFileSize; at += kStride) {
      bytes.replace(at, kOurs, kOurs, ours);
    }
    return bytes;
  }

  int fd_ = -1;
};

TEST_F(NeighboursTest, WritesBackNoByteThatTheProgramDidNotWrite) {
  auto session = join();
  CachedFile* file = session->acquire(fd_, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  file->prefetch(0, 1);
  write_pieces(*file, 'x');
  neighbour_writes('b');
  EXPECT_EQ(file->write_back(), 0);
  EXPECT_TRUE(file_content() == wanted('x', 'b'));
  neighbour_writes('c');
  EXPECT_EQ(session->release(file), 0);
  EXPECT_TRUE(file_content() == wanted('x', 'c'));
}

TEST_F(NeighboursTest, LogsAndRecoversNoByteThatTheProgramDidNotWrite) {
  for (const bool latest : {false, true}) {
    be_killed_after(fd_, [](CachedFile& file) {
      file.prefetch(0, 1);
      write_pieces(file, 'x');
      file.sync();
      file.write_back();
      write_pieces(file, 'y');
      file.sync();  // pages that have records, written back since
    });
    neighbour_writes('b');
    RecoverOptions options;
    options.latest = latest;
    EXPECT_TRUE(recover(folder(), options).good());
    EXPECT_TRUE(file_content() == wanted('y', 'b')) << "latest: " << latest;
  }
}

// Synced, written back, changed again and written back without a sync: the log alone is older.
TEST_F(NeighboursTest, RecoversTheLatestOfWhatTheLogHasOlder) {
  be_killed_after(fd_, [](CachedFile& file) {
    file.prefetch(0, 1);
    write_pieces(file, 'x');
    file.sync();
    write_pieces(file, 'y');
    file.write_back();
  });
  neighbour_writes('b');
  RecoverOptions options;
  options.latest = true;
  EXPECT_TRUE(recover(folder(), options).good());
  EXPECT_TRUE(file_content() == wanted('y', 'b'));
}

// As MPIs write the small pieces of a view: read, change, write back.
TEST_F(NeighboursTest, KeepsNoneOfAWindowsOtherBytesAndReadsThemFromTheFile) {
  auto session = join();
  CachedFile* file = session->acquire(fd_, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  file->prefetch(0, 1);
  write_pieces(*file, 'x');  // not in the file yet
  neighbour_writes('b');     // nor this in the cache
  std::string window(kFileSize - 100, ' ');
  ASSERT_EQ(file->read_window(100, window.data(), window.size()),
            static_cast<ssize_t>(window.size()));
  EXPECT_TRUE(window == wanted('x', 'b').substr(100));
  constexpr std::uint64_t kChanged = 500;
  window[kChanged - 100] = 'w';
  ASSERT_EQ(file->write_window(100, window.data(), window.size()),
            static_cast<ssize_t>(window.size()));
  EXPECT_EQ(file_content()[kChanged], 'w') << "it is in the file at once";
  char got = ' ';
  ASSERT_EQ(file->read(kChanged, &got, 1), 1);
  EXPECT_EQ(got, 'w');
  neighbour_writes('c');
  EXPECT_EQ(session->release(file), 0);
  std::string all = wanted('x', 'c');
  all[kChanged] = 'w';
  EXPECT_TRUE(file_content() == all);
}

TEST_F(NeighboursTest, LogsAgainWhatAWindowChangedOfWhatWasSynced) {
  be_killed_after(fd_, [](CachedFile& file) {
    write_pieces(file, 'x');
    file.sync();
    std::string window(kFileSize, ' ');
    file.read_window(0, window.data(), window.size());
    std::memset(window.data(), 'w', kOurs);
    file.write_window(0, window.data(), window.size());
    file.sync();
  });
  neighbour_writes('b');
  EXPECT_TRUE(recover(folder(), {}).good());
  EXPECT_TRUE(file_content() == wanted('x', 'b').replace(0, kOurs, kOurs, 'w'));
}

// Else the MPI would take what is there for absent, and write over it.
TEST_F(NeighboursTest, ReadsInAWindowWhatAnotherJobAppended) {
  auto session = join();
  CachedFile* file = session->acquire(fd_, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(pwrite(fd_, "more", 4, kFileSize), 4);
  std::string window(100, ' ');
  ASSERT_EQ(file->read_window(kFileSize, window.data(), window.size()), 4);
  EXPECT_EQ(window.substr(0, 4), "more");
  EXPECT_EQ(session->release(file), 0);
}

// What the store had there were the zeros behind the end, beside a byte of ours.
TEST_F(NeighboursTest, SeesFromTheNextSyncOnWhatAnotherJobAppended) {
  settings_.quiet = true;
  auto session = join();
  CachedFile* file = session->acquire(fd_, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  file->prefetch(0, 1);
  ASSERT_EQ(file->write(kFileSize - 1, "x", 1), 1);
  ASSERT_EQ(pwrite(fd_, "more", 4, kFileSize), 4);
  EXPECT_EQ(file->sync(), 0);
  std::string end(10, ' ');
  EXPECT_EQ(file->read(kFileSize - 2, end.data(), end.size()), 6);
  EXPECT_EQ(end.substr(0, 6), "axmore");
  EXPECT_EQ(session->release(file), 0);
}

}  // namespace
}  // namespace nvio
