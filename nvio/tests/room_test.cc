// Room that is reserved in the store, before anything is written there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "../cache/capacity.h"
#include "../medium/medium.h"
#include "../store/segment.h"
#include "temporary_store.h"

namespace nvio {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

bool g_interrupted = false;

// Signals as a profiler has them sent. From Linux 6.10 on tmpfs is not interrupted by them; as
// before it was with a timer so fast that only little can be had at a time.
class Profiled {
 public:
  Profiled() {
    struct sigaction act {};
    act.sa_handler = [](int) {};
    act.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &act, &before_);
    const itimerval often{{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &often, nullptr);
    g_interrupted = true;
  }
  Profiled(const Profiled&) = delete;
  Profiled& operator=(const Profiled&) = delete;
  ~Profiled() {
    g_interrupted = false;
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  struct sigaction before_ {};
};

// A limit of this process. Whoever makes a file longer than he may is ended by a signal.
class Limited {
 public:
  Limited(__rlimit_resource_t what, rlim_t most) : what_(what) {
    getrlimit(what, &before_);
    const rlimit small{most, before_.rlim_max};
    setrlimit(what, &small);
  }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;
  ~Limited() { setrlimit(what_, &before_); }

 private:
  __rlimit_resource_t what_;
  rlimit before_{};
};

class RoomTest : public ::testing::Test, protected TemporaryStore {
 protected:
  RoomTest() : TemporaryStore("room", "/dev/shm") {}
};

TEST_F(RoomTest, SignalsKeepNobodyFromItInTheWorkingMemory) {
  const Profiled profiled;
  std::string why;
  const auto segment = Segment::open_or_create(path_, 64 * kMiB, why);
  ASSERT_NE(segment, nullptr) << why;
  for (std::uint32_t i = 0; i < segment->header().slots; ++i) {
    ASSERT_NE(segment->take_slot(), kNone) << i;
  }
}

TEST_F(RoomTest, SignalsKeepNobodyFromItInTheLog) {
  const Profiled profiled;
  std::string why;
  const auto log = open_tmpfs_medium(path_, why);
  ASSERT_NE(log, nullptr) << why;
  EXPECT_EQ(log->reserve(64 * kMiB), 0);
}

TEST_F(RoomTest, AStoreIsNoLongerFileThanTheProcessMayMake) {
  const Limited files(RLIMIT_FSIZE, 64 * kMiB);
  Settings settings;
  settings.store = "/dev/shm";
  std::string why;
  const std::uint64_t capacity = choose_capacity(settings, true, why);
  EXPECT_GT(capacity, 32 * kMiB) << why;
  ASSERT_NE(Segment::open_or_create(path_, capacity, why), nullptr) << why;
  EXPECT_EQ(Segment::open_or_create(path_ + ".longer", 64 * kMiB, why), nullptr);
  EXPECT_NE(why.find("File too large"), why.npos) << why;
  settings.capacity = 64 * kMiB;
  EXPECT_EQ(choose_capacity(settings, true, why), 0);
  EXPECT_NE(why.find("ulimit -f"), why.npos) << why;
}

TEST_F(RoomTest, NoStoreIsMadeWhereTheProcessMayMakeNone) {
  const Limited files(RLIMIT_FSIZE, kMiB);
  Settings settings;
  settings.store = "/dev/shm";
  std::string why;
  EXPECT_EQ(choose_capacity(settings, true, why), 0);
  EXPECT_NE(why.find("ulimit -f"), why.npos) << why;
}

TEST_F(RoomTest, ALogIsNoLongerThanTheProcessMayMakeIt) {
  std::string why;
  const auto log = open_tmpfs_medium(path_, why);
  ASSERT_NE(log, nullptr) << why;
  ASSERT_EQ(log->reserve(2 * kMiB), 0);
  const Limited files(RLIMIT_FSIZE, kMiB);
  EXPECT_EQ(log->reserve(3 * kMiB), EFBIG);
  EXPECT_EQ(log->write(kMiB - 1, "ab", 2), EFBIG);
  EXPECT_EQ(log->write(kMiB - 2, "ab", 2), 0);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which map far more
TEST_F(RoomTest, AStoreLeavesAProgramWithFewAddressesMostOfThem) {
  Settings settings;
  settings.store = "/dev/shm";
  std::string why;
  constexpr std::uint64_t kAddresses = 512 * kMiB;
  ASSERT_GT(choose_capacity(settings, true, why), kAddresses / 8) << why;
  const Limited addresses(RLIMIT_AS, kAddresses);
  const std::uint64_t capacity = choose_capacity(settings, true, why);
  EXPECT_GT(capacity, kAddresses / 16) << why;
  EXPECT_LE(capacity, Segment::capacity_within(kAddresses / 8));
  settings.capacity = kAddresses / 4;
  EXPECT_EQ(choose_capacity(settings, true, why), settings.capacity) << why;
}
#endif

// A hole stands for what it would have to walk through again.
TEST_F(RoomTest, WhatALogHasIsNotReservedAgain) {
  std::string why;
  const auto log = open_tmpfs_medium(path_, why);
  ASSERT_NE(log, nullptr) << why;
  ASSERT_EQ(log->reserve(4 * kMiB), 0);
  const int fd = ::open(path_.c_str(), O_RDWR);
  ASSERT_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * kMiB), 0);
  ASSERT_EQ(log->reserve(6 * kMiB), 0);
  EXPECT_EQ(log->reserve(5 * kMiB), 0);
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  ::close(fd);
  EXPECT_EQ(status.st_size, 6 * kMiB);
  EXPECT_EQ(status.st_blocks * 512, 2 * kMiB);
}

}  // namespace
}  // namespace nvio

// In the C library's place.
extern "C" int posix_fallocate(int fd, off_t offset, off_t length) {
  constexpr off_t kMost = 64 << 10;
  if (nvio::g_interrupted && length > kMost) return EINTR;
  return fallocate(fd, 0, offset, length) == 0 ? 0 : errno;
}
