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
  void TearDown() override {
    if (file_ != nullptr) session_->release(file_);
    ::close(fd_);
  }

  void acquire() {
    session_ = join();
    fd_ = open_file();
    file_ = session_->acquire(fd_, path_, settings_.file);
    ASSERT_NE(file_, nullptr);
  }

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

  std::unique_ptr<Session> session_;
  int fd_ = -1;
  CachedFile* file_ = nullptr;
};

TEST_F(PiecesTest, AreLockedOnceSomebodyLocksRanges) {
  acquire();
  {
    const CachedFile::Undisturbed here(*file_, 0, 100);
    EXPECT_TRUE(here.is_held());
    EXPECT_FALSE(is_locked());
  }
  file_->expect_locks();
  {
    const CachedFile::Undisturbed here(*file_, 0, 100);
    EXPECT_TRUE(here.is_held());
    EXPECT_TRUE(is_locked());
  }
  EXPECT_FALSE(is_locked());
}

TEST_F(PiecesTest, AreLockedWhileTheFileIsPlain) {
  settings_.file.admit = Admit::automatic;
  acquire();
  const CachedFile::Undisturbed here(*file_, 0, 100);
  EXPECT_TRUE(is_locked());
  EXPECT_EQ(file_->drain(), 0) << "who begins to cache the file waits for himself";
}

TEST_F(PiecesTest, AreWaitedForByWhoLocksARange) {
  acquire();
  auto here = std::make_unique<CachedFile::Undisturbed>(*file_, 0, 100);
  auto locking = std::async(std::launch::async, [&] { file_->expect_locks(); });
  EXPECT_EQ(locking.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  here.reset();
  locking.get();
}

TEST_F(PiecesTest, OfAProcessThatWasKilledAreNotWaitedFor) {
  acquire();
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    const auto own = Session::join(settings_, why);
    const CachedFile::Undisturbed here(*own->acquire(fd_, path_, settings_.file), 0, 100);
    if (here.is_held()) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  file_->expect_locks();
}

}  // namespace
}  // namespace nvio
