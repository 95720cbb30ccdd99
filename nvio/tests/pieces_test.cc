// Pieces of views beside an MPI's windows: what keeps these from undoing those, and when it is a
// lock of the file system.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <future>

#include "cached_file_fixture.h"

namespace nvio {
namespace {

class PiecesTest : public CachedFileTest {
 protected:
  // Whether another process would have to wait for a lock of the file.
  bool is_locked() const {
    const pid_t child = fork();
    if (child == 0) {
      const int fd = ::open(path_.c_str(), O_RDWR);
      struct flock range {};
      range.l_type = F_WRLCK;
      _exit(fcntl(fd, F_GETLK, &range) == 0 && range.l_type == F_UNLCK ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
  }
};

TEST_F(PiecesTest, AreLockedOnceSomebodyLocksRanges) {
  const auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  {
    const CachedFile::Undisturbed here(*file, 0, 100);
    EXPECT_TRUE(here.is_held());
    EXPECT_FALSE(is_locked());
  }
  file->expect_locks();
  {
    const CachedFile::Undisturbed here(*file, 0, 100);
    EXPECT_TRUE(here.is_held());
    EXPECT_TRUE(is_locked());
  }
  EXPECT_FALSE(is_locked());
  ::close(fd);
  session->release(file);
}

TEST_F(PiecesTest, AreLockedWhileTheFileIsPlain) {
  settings_.file.admit = Admit::automatic;
  const auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  const CachedFile::Undisturbed here(*file, 0, 100);
  EXPECT_TRUE(is_locked());
  EXPECT_EQ(file->drain(), 0) << "who begins to cache the file waits for himself";
  ::close(fd);
  session->release(file);
}

TEST_F(PiecesTest, AreWaitedForByWhoLocksARange) {
  const auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  auto here = std::make_unique<CachedFile::Undisturbed>(*file, 0, 100);
  auto locking = std::async(std::launch::async, [&] { file->expect_locks(); });
  EXPECT_EQ(locking.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  here.reset();
  locking.get();
  ::close(fd);
  session->release(file);
}

TEST_F(PiecesTest, OfAProcessThatWasKilledAreNotWaitedFor) {
  const int fd = open_file();
  const auto session = join();
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    const auto own = Session::join(settings_, why);
    CachedFile* file = own->acquire(fd, path_, settings_.file);
    const CachedFile::Undisturbed here(*file, 0, 100);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  file->expect_locks();
  ::close(fd);
  session->release(file);
}

}  // namespace
}  // namespace nvio
