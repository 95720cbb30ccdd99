// Names in folders: of files that a job deletes as it closes them, and of what recovery must find.
#include <sys/stat.h>

#include <set>

#include "../recovery/recover.h"
#include "../system/real.h"
#include "cached_file_fixture.h"

namespace nvio {
namespace {

class DeletionTest : public CachedFileTest {
 protected:
  // Writes and syncs, says that the file will be deleted, has that done or not, and closes it.
  template <typename Delete>
  void close_deleting(Delete&& del) {
    const auto session = join();
    const int fd = open_file();
    CachedFile* file = session->acquire(fd, path_, settings_.file);
    ::close(fd);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->write(0, "synced", 6), 6);
    EXPECT_EQ(file->sync(), 0);
    EXPECT_EQ(file->write(6, ", not", 5), 5);
    file->expect_deletion();
    del();
    EXPECT_EQ(session->release(file), 0);
  }
};

TEST_F(DeletionTest, WhatIsRefusedItsDeletionIsWrittenBack) {
  close_deleting([] {});
  EXPECT_EQ(file_content(), "synced, not");
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(DeletionTest, WhatHasAnotherNameIsWrittenBack) {
  close_deleting([&] {
    fs::create_hard_link(path_, path_ + ".other");
    fs::remove(path_);
  });
  fs::rename(path_ + ".other", path_);
  EXPECT_EQ(file_content(), "synced, not");
}

TEST_F(DeletionTest, OfWhatHasNoNameLeftNothingIsWritten) {
  const int seen = open_file();
  close_deleting([&] { fs::remove(path_); });
  struct stat status {};
  ASSERT_EQ(fstat(seen, &status), 0);
  ::close(seen);
  EXPECT_EQ(status.st_size, 0);
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(DeletionTest, KilledWhileItDeletesAJobLosesNothingThatIsStillThere) {
  for (const bool is_deleted : {true, false}) {
    for (const bool latest : {true, false}) {
      const int fd = open_file();
      be_killed_after(fd, [&](CachedFile& file) {
        file.write(0, "synced", 6);
        file.sync();
        file.write(6, ", not", 5);
        file.expect_deletion();
        if (is_deleted) fs::remove(path_);
      });
      ::close(fd);
      RecoverOptions options;
      options.latest = latest;
      const RecoverReport report = recover(folder(), options);
      EXPECT_TRUE(report.good()) << describe(report, false);
      EXPECT_EQ(fs::exists(path_), !is_deleted);
      if (!is_deleted) EXPECT_EQ(file_content(), latest ? "synced, not" : "synced");
      fs::remove(path_);
    }
  }
}

std::set<std::string> synced_folders;

int fsync_noting_folders(int fd) {
  const std::string name = fs::read_symlink("/proc/self/fd/" + std::to_string(fd));
  if (fs::is_directory(name)) synced_folders.insert(name);
  return ::fsync(fd);
}

class NamesTest : public CachedFileTest {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    settings_.kind = StoreKind::file;
    noting_ = real();
    noting_.fsync = fsync_noting_folders;
    before_ = &real();
    set_real(&noting_);
    synced_folders.clear();
  }
  void TearDown() override {
    set_real(before_);
    CachedFileTest::TearDown();
  }

  RealPosix noting_{};
  const RealPosix* before_ = nullptr;
};

// The log's name and its folder's, and the file's own: it may have been made just now.
TEST_F(NamesTest, ASyncMakesSafeUnderWhatNamesItIsFound) {
  const auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ::close(fd);
  file->write(0, "synced", 6);
  EXPECT_EQ(synced_folders, std::set<std::string>{});
  EXPECT_EQ(file->sync(), 0);
  const std::set<std::string> expected{folder(), settings_.store, root_};
  EXPECT_EQ(synced_folders, expected);
  synced_folders.clear();
  file->write(0, "again ", 6);
  EXPECT_EQ(file->sync(), 0);
  EXPECT_EQ(synced_folders, std::set<std::string>{}) << "once is enough";
  EXPECT_EQ(session->release(file), 0);
}

TEST_F(NamesTest, ARecoveredLogDoesNotComeBack) {
  leave_synced();
  synced_folders.clear();
  EXPECT_TRUE(recover(folder(), {}).good());
  EXPECT_TRUE(synced_folders.contains(folder()));
}

}  // namespace
}  // namespace nvio
