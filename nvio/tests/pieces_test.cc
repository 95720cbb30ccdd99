// Pieces of views beside an MPI's windows: what keeps these from undoing those, and when it is a
// lock of the file system.
#include "../cache/pieces.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <future>
#include <mutex>
#include <span>
#include <string>
#include <utility>

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

// What one rank leaves to the MPI then are holes in what the others write: at the close each piece
// between them is a call of the file system.
TEST_F(PiecesTest, AreGoneOnWithWhereASlowFileIsAboutToBeCached) {
  settings_.file.admit = Admit::automatic;
  acquire();
  seem_slow(*file_);
  const View pieces = *View::of({{{0, 512}}, 2048}, 0);
  const std::string data(100 * std::size_t{512}, 'x');
  const char* left = data.data();
  // As another rank's write of pieces elsewhere in the file.
  std::unique_lock<SharedLock> elsewhere(file_->entry().writes_under_way[kWritesUnderWay - 1].lock);
  std::size_t groups = 0;
  EXPECT_TRUE(move_pieces(*file_, pieces, Direction::write, 0, data.size(),
                          [&](std::span<const FileRun> runs, std::uint64_t bytes) {
                            if (++groups == 2) elsewhere.unlock();
                            return file_->write_runs(runs, std::exchange(left, left + bytes));
                          }));
  EXPECT_EQ(groups, 3U) << "two small ones that go to the file, and the rest";
  EXPECT_TRUE(file_->is_active());
  EXPECT_FALSE(file_->is_undecided(Direction::write));
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
