// File systems that tell of an error only at the fsync, and stores that have no room for a log.
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <future>

#include "../recovery/recover.h"
#include "../store/slots.h"
#include "../system/real.h"
#include "cached_file_fixture.h"
#include "full_file_system.h"

namespace nvio {
namespace {

ino_t victim = 0;        // the file whose file system refuses
bool loses = false;      // takes what is written to it, and will not have it
int failures = 0;        // fsyncs that are still to fail, as the kernel tells of an error once
int refusals = 0;        // and closes, as NFS tells
bool no_logs = false;    // none can be opened
bool no_copies = false;  // of descriptors can be had

bool is_victim(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_ino == victim;
}

int open_unless_log(const char* path, int flags, ...) {  // NOLINT(cert-dcl50-cpp): as open is
  if (!no_logs || !std::string(path).ends_with(".redo")) return ::open(path, flags, 0600);
  errno = EMFILE;
  return -1;
}

class DurabilityTest : public CachedFileTest {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    wrapped_ = real();
    wrapped_.pwrite = [](int fd, const void* bytes, std::size_t length, off_t offset) {
      if (loses && is_victim(fd)) return static_cast<ssize_t>(length);
      return ::pwrite(fd, bytes, length, offset);
    };
    wrapped_.pwritev = [](int fd, const iovec* vectors, int count, off_t offset) {
      if (!loses || !is_victim(fd)) return ::pwritev(fd, vectors, count, offset);
      ssize_t length = 0;
      for (int i = 0; i < count; ++i) length += static_cast<ssize_t>(vectors[i].iov_len);
      return length;
    };
    wrapped_.fsync = [](int fd) {
      if (failures == 0 || !is_victim(fd)) return ::fsync(fd);
      loses = --failures != 0;
      errno = EDQUOT;
      return -1;
    };
    wrapped_.close = [](int fd) {
      const bool refuses = refusals != 0 && is_victim(fd);
      const int closed = ::close(fd);
      if (!refuses) return closed;
      loses = --refusals != 0;
      errno = EDQUOT;
      return -1;
    };
    wrapped_.dup = [](int fd) {
      if (!no_copies) return ::dup(fd);
      errno = EMFILE;
      return -1;
    };
    wrapped_.open = open_unless_log;
    before_ = &real();
    set_real(&wrapped_);
  }
  void TearDown() override {
    loses = no_logs = no_copies = false;
    failures = refusals = 0;
    set_real(before_);
    CachedFileTest::TearDown();
  }

  // Opens the file, whose file system may refuse from now on.
  int open_victim() {
    const int fd = open_file();
    struct stat status {};
    fstat(fd, &status);
    victim = status.st_ino;
    return fd;
  }

  CachedFile* open_in(Session& session) {
    const int fd = open_victim();
    CachedFile* file = session.acquire(fd, path_, settings_.file);
    EXPECT_NE(file, nullptr);
    ::close(fd);
    return file;
  }

  CachedFile* synced_in(Session& session) {
    CachedFile* file = open_in(session);
    file->write(0, "synced", 6);
    EXPECT_EQ(file->sync(), 0);
    return file;
  }

  static void fail_fsyncs(int count = 1) {
    loses = true;
    failures = count;
  }

  RealPosix wrapped_{};
  const RealPosix* before_ = nullptr;
};

TEST_F(DurabilityTest, WhatAnFsyncRefusedWhileRoomWasMadeIsWrittenAgainAndTold) {
  const auto session = join();
  CachedFile* file = synced_in(*session);
  fail_fsyncs();
  EXPECT_FALSE(session->make_room());
  EXPECT_EQ(file_content(), "");
  EXPECT_TRUE(session->make_room());
  EXPECT_EQ(file_content(), "synced");
  EXPECT_EQ(file->sync(), EDQUOT) << "what went past the cache may be lost";
  EXPECT_EQ(file->sync(), 0);
  EXPECT_EQ(session->release(file), 0);
}

TEST_F(DurabilityTest, WhatNobodyWasToldOfByASyncIsToldByTheClose) {
  const auto session = join();
  CachedFile* file = synced_in(*session);
  fail_fsyncs();
  session->make_room();
  EXPECT_EQ(session->release(file), EDQUOT);
  EXPECT_EQ(file_content(), "synced");
  file = open_in(*session);
  EXPECT_EQ(session->release(file), 0) << "once is enough";
}

// Written back for a POSIX close; the fsync that tells of it is a sync's.
TEST_F(DurabilityTest, WhatASyncCouldNotMakeDurableStaysInTheStore) {
  const auto session = join();
  CachedFile* file = synced_in(*session);
  fail_fsyncs();
  file->write_back();
  EXPECT_EQ(file->sync(), EDQUOT);
  EXPECT_EQ(session->release(file), 0);
  EXPECT_EQ(file_content(), "synced");
}

TEST_F(DurabilityTest, WhatADurableCloseCouldNotWriteIsWrittenByTheNext) {
  settings_.file.close = Close::durable;
  for (const bool synced : {false, true}) {
    auto session = join();
    CachedFile* file = open_in(*session);
    file->write(0, "written", 7);
    if (synced) ASSERT_EQ(file->sync(), 0);
    fail_fsyncs();
    EXPECT_EQ(session->release(file), EDQUOT);
    EXPECT_TRUE(fs::exists(folder() + "/1.redo")) << "what a crash now would leave for recovery";
    file = open_in(*session);
    std::array<char, 7> got{};
    EXPECT_EQ(file->read(0, got.data(), got.size()), 7);
    EXPECT_EQ(std::string(got.data(), got.size()), "written");
    EXPECT_EQ(session->release(file), 0);
    EXPECT_EQ(file_content(), "written");
    session.reset();
    EXPECT_FALSE(fs::exists(folder()));
    fs::remove(path_);
  }
}

TEST_F(DurabilityTest, ADurableCloseIsOneOfAFileOfWhichNothingIsCached) {
  settings_.file.close = Close::durable;
  settings_.file.admit = Admit::never;
  auto session = join();
  CachedFile* file = open_in(*session);
  file->write(0, "written", 7);
  failures = 1;
  EXPECT_EQ(session->release(file), EDQUOT);
  file = open_in(*session);
  file->write(0, "again", 5);
  EXPECT_EQ(file->sync(), 0);
  failures = 1;
  EXPECT_EQ(session->release(file), 0) << "it is durable already";
  session.reset();
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(DurabilityTest, WhatTheFileSystemRefusesAtACloseIsToldAndStaysInTheStore) {
  const auto session = join();
  CachedFile* file = open_in(*session);
  file->write(0, "written", 7);
  loses = true;
  refusals = 1;
  EXPECT_EQ(file->write_back_and_flush(), EDQUOT) << "as a manager does it";
  EXPECT_EQ(file->write_back_and_flush(), 0);
  EXPECT_EQ(file_content(), "written");
  file->write(0, "changed", 7);
  loses = true;
  refusals = 1;
  EXPECT_EQ(session->release(file), EDQUOT);
  EXPECT_EQ(file_content(), "written");
  file = open_in(*session);
  std::array<char, 7> got{};
  EXPECT_EQ(file->read(0, got.data(), got.size()), 7);
  EXPECT_EQ(std::string(got.data(), got.size()), "changed");
  EXPECT_EQ(session->release(file), 0);
  EXPECT_EQ(file_content(), "changed");
}

TEST_F(DurabilityTest, ASyncToTheFileThatFailedIsDoneByTheNext) {
  settings_.file.sync = SyncTo::file;
  const auto session = join();
  CachedFile* file = open_in(*session);
  file->write(0, "synced", 6);
  fail_fsyncs();
  EXPECT_EQ(file->sync(), EDQUOT);
  EXPECT_EQ(file->sync(), 0);
  EXPECT_EQ(file_content(), "synced");
  EXPECT_EQ(session->release(file), 0);
}

// All ranks sync one after the other: only the first one has something to log, or to write.
TEST_F(DurabilityTest, ASyncAfterWhichNothingWasChangedLooksAtNoBlock) {
  for (const SyncTo to : {SyncTo::store, SyncTo::file}) {
    settings_.file.sync = to;
    const auto session = join();
    CachedFile* file = open_in(*session);
    ASSERT_EQ(file->write(0, "first", 5), 5);
    ASSERT_EQ(file->sync(), 0);
    SharedLock& lock = session->segment().bucket_of(file->index(), 0).lock;
    lock.lock();
    auto sync = std::async(std::launch::async, [file] { return file->sync(); });
    EXPECT_EQ(sync.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    lock.unlock();
    EXPECT_EQ(sync.get(), 0);
    ASSERT_EQ(file->write(1, "later", 5), 5);
    EXPECT_EQ(file->entry().changes.load(), kChanged);
    ASSERT_EQ(file->sync(), 0);
    if (to == SyncTo::file) EXPECT_EQ(file_content(), "flater");
    EXPECT_EQ(session->release(file), 0);
    EXPECT_EQ(file_content(), "flater");
  }
}

TEST_F(DurabilityTest, KilledAfterAnFsyncFailedAJobLosesNothingThatWasSynced) {
  for (const bool latest : {false, true}) {
    const int fd = open_victim();
    be_killed_after(fd, [](CachedFile& file, Session& session) {
      file.write(0, "synced", 6);
      file.sync();
      file.write(100000, "not", 3);
      fail_fsyncs(2);
      session.make_room();
      session.make_room();
    });
    ::close(fd);
    RecoverOptions options;
    options.latest = latest;
    const RecoverReport report = recover(folder(), options);
    EXPECT_TRUE(report.good()) << describe(report, false);
    EXPECT_EQ(file_content().substr(0, 6), "synced");
    if (latest) EXPECT_EQ(file_content().substr(100000), "not");
    fs::remove(path_);
  }
}

TEST_F(DurabilityTest, BlocksLeaveAStoreThatHadNoRoomForTheFirstLog) {
  const auto session = join();
  CachedFile* file = open_in(*session);
  file->write(0, std::string(kPageSize, 's').data(), kPageSize);
  {
    const FullFileSystem full(kFirstRecord + 1000);  // of superblocks and no page
    EXPECT_EQ(file->sync(), 0) << "by way of the file";
  }
  EXPECT_EQ(file_content(), std::string(kPageSize, 's'));
  const std::uint64_t checkpoints = session->counters().checkpoints;
  EXPECT_TRUE(session->make_room());
  EXPECT_EQ(session->counters().checkpoints, checkpoints) << "all is clean";
  file->write(0, "again", 5);
  EXPECT_EQ(file->step_aside(), 0);
  EXPECT_EQ(session->release(file), 0);
}

TEST_F(DurabilityTest, WhoeverIsKilledInTheFirstSyncLeavesNoBlockForGood) {
  const auto session = join();
  CachedFile* file = open_in(*session);
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& own) {
    own.write(0, std::string(kPageSize, 's').data(), kPageSize);
    static RealPosix wrapped = real();
    wrapped.pwrite = [](int to, const void* bytes, std::size_t length, off_t offset) {
      if (offset >= static_cast<off_t>(kFirstRecord)) kill(getpid(), SIGKILL);
      return ::pwrite(to, bytes, length, offset);
    };
    set_real(&wrapped);
    own.sync();
  });
  ::close(fd);
  EXPECT_EQ(file->step_aside(), 0);
  EXPECT_EQ(file_content(), std::string(kPageSize, 's'));
}

TEST_F(DurabilityTest, AFileThatCannotBeServedForWantOfADescriptorIsLeftToItself) {
  settings_.quiet = true;
  const auto first = join();
  const auto second = join();
  const int fd = open_file();
  no_copies = true;
  EXPECT_EQ(first->acquire(fd, path_, settings_.file), nullptr);
  no_copies = false;
  CachedFile* file = open_in(*first);
  EXPECT_TRUE(file->is_active()) << "nobody had it open any more";
  no_copies = true;
  EXPECT_EQ(second->acquire(fd, path_, settings_.file), nullptr);
  EXPECT_FALSE(file->is_active()) << "who goes to the file must find all there";
  no_copies = false;
  EXPECT_EQ(first->release(file), 0);
  file = open_in(*first);
  file->write(0, "cached", 6);
  no_copies = true;
  CachedFile* served = second->acquire(fd, path_, settings_.file);
  ASSERT_NE(served, nullptr) << "it would miss what is cached, and cannot write it back";
  EXPECT_EQ(served->write(0, "x", 1), -1);
  no_copies = false;
  EXPECT_EQ(second->release(served), 0);
  EXPECT_EQ(first->release(file), 0);
  EXPECT_EQ(file_content(), "cached");
  ::close(fd);
}

// A program may open a file by one library as it likes, and by another as a user set it.
TEST_F(DurabilityTest, ALaterOpeningMayAskForMoreThanTheFirstAndNotForLess) {
  const auto session = join();
  CachedFile* file = open_in(*session);
  const FileSettings usual = settings_.file;
  settings_.file.sync = SyncTo::file;
  settings_.file.close = Close::durable;
  EXPECT_EQ(open_in(*session), file);
  settings_.file = usual;
  EXPECT_EQ(open_in(*session), file);
  file->write(0, "synced", 6);
  EXPECT_EQ(file->sync(), 0);
  EXPECT_EQ(file_content(), "synced");
  file->write(0, "closed", 6);
  failures = 1;
  for (int handle = 0; handle < 2; ++handle) EXPECT_EQ(session->release(file), 0);
  EXPECT_EQ(session->release(file), EDQUOT) << "of its fsync";
}

TEST_F(DurabilityTest, ALogThatCannotBeOpenedIsNotTakenForVoid) {
  auto first = join();
  CachedFile* file = synced_in(*first);
  auto second = join();
  CachedFile* same = open_in(*second);
  no_logs = true;
  EXPECT_EQ(same->truncate(0), EIO) << "its records would come over what is written later";
  EXPECT_EQ(same->checkpoint(), EIO);
  no_logs = false;
  EXPECT_EQ(same->truncate(0), 0);
  EXPECT_EQ(second->release(same), 0);
  EXPECT_EQ(first->release(file), 0);
}

}  // namespace
}  // namespace nvio
