// Who joins a dead run's store while somebody else has it alone, or with others: it is settled by
// the first of them to whom it is left.
#include <array>
#include <chrono>
#include <future>

#include "../recovery/recover.h"
#include "../system/real.h"
#include "left_over_fixture.h"

namespace nvio {
namespace {

// Waits till so many processes wait for a lock of this file.
void await_waiters(const std::string& path, std::size_t wanted) {
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  const std::string of_file = ":" + std::to_string(status.st_ino) + " ";
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (std::size_t waiting = 0; waiting < wanted;) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << waiting << " wait";
    waiting = 0;
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
      if (line.find("->") != line.npos && line.find(of_file) != line.npos) ++waiting;
    }
  }
}

class JoinedMeanwhileTest : public LeftOverTest {
 protected:
  void SetUp() override {
    LeftOverTest::SetUp();
    fd_ = open_file();
    be_killed_after(fd_, [](CachedFile& file) { put(file, "of the killed run"); });
  }
  void TearDown() override {
    ::close(fd_);
    LeftOverTest::TearDown();
  }

  // Joins beside another process, which calls act() and has the store alone when it opens its
  // segment: there it is held up till this one waits, and then goes on or is killed.
  template <typename Act>
  std::unique_ptr<Session> join_beside(bool is_killed, Act&& act) {
    EXPECT_EQ(pipe2(reached_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(go_on_, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      ::close(go_on_[1]);
      RealPosix wrapped = real();
      wrapped.open = open_held_up;
      set_real(&wrapped);
      _exit(act() ? 0 : 1);
    }
    ::close(reached_[1]);
    char byte = 0;
    EXPECT_EQ(::read(reached_[0], &byte, 1), 1);
    auto joined = std::async(std::launch::async, [this] { return join(); });
    await_waiters(folder() + "/alive", 1);
    if (is_killed) kill(child, SIGKILL);
    ::close(go_on_[1]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, is_killed ? SIGKILL : 0);
    ::close(reached_[0]);
    ::close(go_on_[0]);
    return joined.get();
  }

  void expect_settled(Session* session) {
    ASSERT_NE(session, nullptr);
    EXPECT_EQ(at_place(), "of the killed run");
    struct stat status {};
    ASSERT_EQ(fstat(fd_, &status), 0);
    EXPECT_EQ(session->segment().find(status), kNone) << "the table is the dead run's";
  }

  int fd_ = -1;

 private:
  static int open_held_up(const char* path, int flags, ...) {
    char byte = 0;
    if (std::string(path).ends_with("/segment") &&
        (::write(reached_[1], "!", 1) != 1 || ::read(go_on_[0], &byte, 1) != 0)) {
      _exit(2);
    }
    return ::open(path, flags, 0600);
  }

  static inline int reached_[2];
  static inline int go_on_[2];
};

TEST_F(JoinedMeanwhileTest, WhatARecoveryLetBeIsSettledByWhoWaitedForIt) {
  const auto session = join_beside(false, [this] {
    RecoverOptions options;
    options.latest = true;
    options.dry_run = true;
    return recover(folder(), options).good();
  });
  expect_settled(session.get());
}

TEST_F(JoinedMeanwhileTest, WhatAKilledOneDidNotSettleIsSettledByWhoWaitedForIt) {
  const auto session = join_beside(true, [this] { return join() != nullptr; });
  expect_settled(session.get());
}

// With the lock held elsewhere till they wait, they go on together.
TEST_F(JoinedMeanwhileTest, OfAllWhoComeAtOnceTheFirstSettlesIt) {
  constexpr std::size_t kRanks = 16;
  const std::string alive = folder() + "/alive";
  LifeLock held(::open(alive.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(held.take_alone());
  std::array<int, 2> joined{};
  std::array<int, 2> end{};
  ASSERT_EQ(pipe2(joined.data(), O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(end.data(), O_CLOEXEC), 0);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    if (fork() != 0) continue;
    ::close(end[1]);
    const auto session = join();
    struct stat status {};
    fstat(fd_, &status);
    const bool is_new = session != nullptr && session->segment().find(status) == kNone;
    char byte = is_new ? 'y' : 'n';
    _exit(::write(joined[1], &byte, 1) == 1 && ::read(end[0], &byte, 1) == 0 ? 0 : 1);
  }
  await_waiters(alive, kRanks);
  held.give_up();
  std::string told(kRanks, ' ');
  for (char& of_rank : told) EXPECT_EQ(::read(joined[0], &of_rank, 1), 1);
  EXPECT_EQ(told, std::string(kRanks, 'y'));
  EXPECT_EQ(at_place(), "of the killed run");
  for (const int fd : {end[0], end[1], joined[0], joined[1]}) ::close(fd);
  while (wait(nullptr) > 0) continue;
}

}  // namespace
}  // namespace nvio
