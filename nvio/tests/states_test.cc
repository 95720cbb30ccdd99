// A file's way into the cache and out of it (Mode): it comes there whatever a write that lasts, or
// a process that is killed on the way, leaves behind.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "cached_file_fixture.h"
#include "held_write.h"

namespace nvio {
namespace {

constexpr std::uint64_t kPiece = 4096;
constexpr std::uint64_t kPieces = 100;

class StatesTest : public CachedFileTest {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    settings_.capacity = 16 << 20;
    settings_.file.admit = Admit::automatic;
    fd_ = open_file();
    session_ = join();
    file_ = session_->acquire(fd_, path_, settings_.file);
    ASSERT_NE(file_, nullptr);
  }

  void TearDown() override {
    // The handle of a process that was killed keeps ours from being the last.
    EXPECT_EQ(file_->write_back(), 0);
    EXPECT_EQ(session_->release(file_), 0);
    ::close(fd_);
    session_.reset();
    EXPECT_TRUE(file_content() == model_);
    CachedFileTest::TearDown();
  }

  // Writes pieces in steps too uneven for a stream; returns how many of them were cached.
  std::uint64_t cached_of_written(char byte) {
    const std::uint64_t before = session_->counters().writes_cached;
    for (std::uint64_t i = 0; i < kPieces; ++i) {
      const std::uint64_t at = (1 + i * i % kPieces) * kPiece;
      write(at, byte);
    }
    return session_->counters().writes_cached - before;
  }

  void write(std::uint64_t at, char byte) {
    const std::string data(kPiece, byte);
    if (model_.size() < at + kPiece) model_.resize(at + kPiece);
    model_.replace(at, kPiece, data);
    EXPECT_EQ(file_->write(at, data.data(), kPiece), static_cast<ssize_t>(kPiece));
    std::string got(kPiece, ' ');
    EXPECT_EQ(file_->read(at, got.data(), kPiece), static_cast<ssize_t>(kPiece));
    EXPECT_EQ(got, data);
  }

  int fd_ = -1;
  std::unique_ptr<Session> session_;
  CachedFile* file_ = nullptr;
  std::string model_;
};

TEST_F(StatesTest, APlainWriteThatLastsPutsTheCacheOffAndNotOut) {
  model_ = std::string(kPiece, 'h');
  const std::string held = model_;
  HeldWrite write([&] { file_->write(0, held.data(), kPiece); });
  seem_slow(*file_);
  EXPECT_EQ(cached_of_written('a'), 0U) << "what is written plainly could be fetched too early";
  write.end();
  EXPECT_EQ(cached_of_written('b'), kPieces);
}

TEST_F(StatesTest, WindowsGoOnWhereAPlainWritePutTheCacheOff) {
  std::string data(kPiece, 'h');
  model_ = data;
  HeldWrite held([&] { file_->write(0, data.data(), kPiece); });
  seem_slow(*file_);
  file_->write(0, data.data(), kPiece);
  ASSERT_EQ(file_->entry().mode.load(), kDraining);
  file_->write_window(0, data.data(), kPiece);
  EXPECT_EQ(file_->entry().mode.load(), kDraining) << "it is still under way";
  held.end();
  file_->read_window(0, data.data(), kPiece);
  EXPECT_EQ(file_->entry().mode.load(), kActive);
}

TEST_F(StatesTest, AProcessKilledInAPlainWriteDoesNotHoldTheCacheUp) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  static int told = -1;
  told = ends[1];
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    const auto session = Session::join(settings_, why);
    CachedFile* file = session == nullptr ? nullptr : session->acquire(fd_, path_, settings_.file);
    if (file == nullptr) _exit(3);
    RealPosix wrapped = real();
    wrapped.pwrite = [](int, const void*, std::size_t, off_t) -> ssize_t {
      if (::write(told, "w", 1) == 1) pause();
      return -1;
    };
    set_real(&wrapped);
    file->write(0, "never", 5);
    _exit(4);
  }
  char said = 0;
  ASSERT_EQ(::read(ends[0], &said, 1), 1);
  seem_slow(*file_);
  EXPECT_EQ(cached_of_written('a'), 0U) << "it is still alive";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(cached_of_written('b'), kPieces);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(StatesTest, WhoeverComesNextGoesOnWhereAProcessWasKilledOnTheWayIn) {
  be_killed_after(fd_, [](CachedFile& file) {
    seem_slow(file);
    static RealPosix wrapped = real();
    wrapped.fstat = [](int, struct stat*) { return kill(getpid(), SIGKILL); };
    set_real(&wrapped);
    file.write(0, "x", 1);
  });
  ASSERT_EQ(file_->entry().mode.load(), kDraining);
  model_ = "x";
  EXPECT_EQ(cached_of_written('b'), kPieces);
}

TEST_F(StatesTest, WhoeverComesNextGoesBackWhereAProcessWasKilledOnTheWayOut) {
  seem_slow(*file_);
  cached_of_written('a');
  be_killed_after(fd_, [](CachedFile& file) {
    static RealPosix wrapped = real();
    wrapped.pwrite = [](int, const void*, std::size_t, off_t) -> ssize_t {
      return kill(getpid(), SIGKILL);
    };
    wrapped.pwritev = [](int, const iovec*, int, off_t) -> ssize_t {
      return kill(getpid(), SIGKILL);
    };
    set_real(&wrapped);
    file.step_aside();
  });
  ASSERT_EQ(file_->entry().mode.load(), kLeaving);
  const std::uint64_t before = session_->counters().writes_cached;
  write(5 << 20, 'b');  // where nothing is cached that would have to be kept
  EXPECT_EQ(session_->counters().writes_cached, before + 1);
  EXPECT_EQ(file_->step_aside(), 0);
}

// A disk that is full, or a quota that is used up, in the middle of a write.
TEST_F(StatesTest, OfAWriteThatFailsHalfwayTheCacheShowsWhatTheFileHas) {
  seem_slow(*file_);
  cached_of_written('a');
  ASSERT_EQ(file_->write_back(), 0);
  const RealPosix* plain = &real();
  for (const bool window : {false, true}) {
    const std::uint64_t at = (window ? 25 : 1) * kPiece;  // cached are those behind squares
    const std::string data(2 * kPiece, 'n');
    RealPosix wrapped = *plain;
    wrapped.pwrite = [](int fd, const void* bytes, std::size_t length, off_t offset) -> ssize_t {
      if (offset % static_cast<off_t>(kPiece) == 0) return ::pwrite(fd, bytes, length / 4, offset);
      errno = ENOSPC;
      return -1;
    };
    set_real(&wrapped);
    EXPECT_EQ(window ? file_->write_window(at, data.data(), data.size())
                     : file_->write(at, data.data(), data.size(), true),
              -1);
    EXPECT_EQ(errno, ENOSPC);
    set_real(plain);
    model_.replace(at, data.size() / 4, data.size() / 4, 'n');
    std::string got(data.size(), ' ');
    EXPECT_EQ(file_->read(at, got.data(), got.size()), static_cast<ssize_t>(got.size()));
    EXPECT_TRUE(got == model_.substr(at, got.size())) << window;
  }
}

TEST_F(StatesTest, AFileThatCannotLeaveGoesOnBeingCached) {
  seem_slow(*file_);
  cached_of_written('a');
  const RealPosix* plain = &real();
  RealPosix wrapped = *plain;
  wrapped.pwrite = [](int, const void*, std::size_t, off_t) -> ssize_t {
    errno = ENOSPC;
    return -1;
  };
  wrapped.pwritev = [](int, const iovec*, int, off_t) -> ssize_t {
    errno = ENOSPC;
    return -1;
  };
  set_real(&wrapped);
  EXPECT_EQ(file_->step_aside(), ENOSPC);
  set_real(plain);
  EXPECT_EQ(cached_of_written('b'), kPieces);
}

}  // namespace
}  // namespace nvio
