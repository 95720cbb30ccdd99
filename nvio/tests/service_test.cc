// What a manager does for those who ask it, without a connection.
#include "../manager/service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <semaphore>
#include <thread>

#include "../cache/cached_file.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "temporary_store.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;

// How often this thread may have memory until it is refused, once.
thread_local std::uint64_t g_times = UINT64_MAX;

constexpr ino_t kInode = 77;
constexpr std::uint64_t kAsker = 1;

// As if each file lay on a file system of its own, where it has the same inode as the others.
void move_apart(struct stat& status) {
  if (!S_ISREG(status.st_mode)) return;
  status.st_dev = status.st_ino;
  status.st_ino = kInode;
}

int fstat_apart(int fd, struct stat* status) {
  const int result = ::fstat(fd, status);
  if (result == 0) move_apart(*status);
  return result;
}

int stat_apart(const char* path, struct stat* status) {
  const int result = ::stat(path, status);
  if (result == 0) move_apart(*status);
  return result;
}

class ServiceTest : public ::testing::Test, protected TemporaryStore {
 protected:
  ServiceTest() : TemporaryStore("service") {}

  void SetUp() override {
    settings_.capacity = 2 << 20;
    settings_.nodes = 2;
    settings_.node = 0;
    std::string why;
    session_ = Session::join(settings_, why);
    ASSERT_NE(session_, nullptr) << why;
    apart_ = *plain_;
    apart_.fstat = fstat_apart;
    apart_.stat = stat_apart;
    set_real(&apart_);
  }

  void TearDown() override {
    set_real(plain_);
    session_.reset();
  }

  static Reply open(Service& service, const std::string& path, ServedFile*& file) {
    OpenRequest wanted;
    wanted.inode = kInode;
    wanted.access = kReads | kWrites;
    wanted.path = path;
    Request request{};
    request.operation = Operation::open;
    std::vector<std::byte> answer;
    return service.serve(request, file, kAsker, open_payload(wanted), answer);
  }

  std::unique_ptr<Session> session_;
  const RealPosix* plain_ = &real();
  RealPosix apart_{};
};

TEST_F(ServiceTest, TakesNoFileForOneOfAnotherFileSystemThatHasItsInode) {
  std::ofstream(root_ + "/one") << "one";
  std::ofstream(root_ + "/two") << "two";
  fs::create_hard_link(root_ + "/one", root_ + "/alias");
  Service service(*session_);
  ServedFile* one = nullptr;
  ServedFile* two = nullptr;
  ServedFile* same = nullptr;
  ASSERT_EQ(open(service, root_ + "/one", one).error, 0);
  ASSERT_EQ(open(service, root_ + "/two", two).error, 0);
  EXPECT_NE(one, two);
  ASSERT_EQ(open(service, root_ + "/alias", same).error, 0);
  EXPECT_EQ(one, same) << "another name of the same file";
  Request request{};
  request.operation = Operation::read;
  request.length = request.size = 3;
  std::vector<std::byte> answer;
  ASSERT_EQ(service.serve(request, two, kAsker, {}, answer).error, 0);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(answer.data()), answer.size()), "two");
  for (ServedFile* file : {one, two, same}) EXPECT_EQ(service.release(file, kAsker), 0);
}

// Wherever the opening has come by then.
TEST_F(ServiceTest, HoldsNothingOfAFileThatItLackedTheMemoryToOpen) {
  std::ofstream(root_ + "/one") << "one";
  Service service(*session_);
  // Known already: each opening takes as much memory as the others.
  const int fd = ::open((root_ + "/one").c_str(), O_RDWR | O_CLOEXEC);
  CachedFile* cached = session_->acquire(fd, root_ + "/one", {});
  ASSERT_NE(cached, nullptr);
  ::close(fd);
  bool is_refused = true;
  for (std::uint64_t times = 0; is_refused; ++times) {
    ServedFile* file = nullptr;
    g_times = times;
    const int error =
        or_no_memory([&] { return static_cast<int>(open(service, root_ + "/one", file).error); });
    is_refused = g_times == UINT64_MAX;
    g_times = UINT64_MAX;
    EXPECT_EQ(error, file != nullptr ? 0 : ENOMEM) << times;
    if (file != nullptr) EXPECT_EQ(service.release(file, kAsker), 0);
  }
  EXPECT_EQ(session_->release(cached), 0);
  EXPECT_EQ(session_->segment().file(0).used.load(), 0U) << "a handle that nobody has";
}

// The file system is asked for a write only when it is let.
class TakenTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    let_.emplace(0);
    error_ = 0;
    apart_.pwrite = [](int fd, const void* data, std::size_t length, off_t offset) -> ssize_t {
      let_->acquire();
      errno = error_;
      return error_ != 0 ? -1 : ::pwrite(fd, data, length, offset);
    };
    std::ofstream(root_ + "/one") << std::string(100, 'o');
    ASSERT_EQ(open(service(), root_ + "/one", file_).error, 0);
  }

  void TearDown() override {
    let_->release(1000);
    service_.reset();
    ServiceTest::TearDown();
  }

  Service& service() {
    if (!service_) service_.emplace(*session_);
    return *service_;
  }

  // Whether a write was taken at once.
  bool take(std::uint64_t offset, const std::string& data) {
    Reply reply{};
    Request write{};
    write.operation = Operation::write;
    write.flags = kQueue;
    write.offset = offset;
    const bool is_taken = service().serve_at_once(write, *file_, kAsker, bytes_of(data), reply, {});
    if (is_taken) EXPECT_EQ(reply.value, data.size());
    return is_taken;
  }

  static std::span<const std::byte> bytes_of(const std::string& data) {
    return std::as_bytes(std::span(data));
  }

  int ask(Operation operation, std::uint64_t asker) {
    Request request{};
    request.operation = operation;
    std::vector<std::byte> answer;
    return service().serve(request, file_, asker, {}, answer).error;
  }

  static inline std::optional<std::counting_semaphore<>> let_;
  static inline std::atomic<int> error_{0};
  std::optional<Service> service_;
  ServedFile* file_ = nullptr;
};

TEST_F(TakenTest, AWriteIsTakenBeforeItIsDoneAndWhoReadsItsBytesComesBehind) {
  ASSERT_TRUE(take(10, "new"));
  Request read{};
  read.operation = Operation::read;
  read.offset = 11;
  read.length = 3;
  read.size = 14;
  std::vector<std::byte> answer;
  Reply reply{};
  std::vector<std::byte> room(3);
  EXPECT_FALSE(service().serve_at_once(read, *file_, kAsker + 1, {}, reply, room));
  std::thread asks([&] {
    ServedFile* file = file_;
    EXPECT_EQ(service().serve(read, file, kAsker + 1, {}, answer).error, 0);
  });
  let_->release();
  asks.join();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(answer.data()), answer.size()), "ewo");
  EXPECT_EQ(service().release(file_, kAsker), 0);
}

TEST_F(TakenTest, AnErrorIsToldOnceToWhoHadTheWriteQueued) {
  error_ = ENOSPC;
  let_->release(2);
  for (const Operation tells : {Operation::sync, Operation::write_back}) {
    ASSERT_TRUE(take(10, "new"));
    EXPECT_EQ(ask(tells, kAsker + 1), 0);
    EXPECT_EQ(ask(tells, kAsker), ENOSPC);
    EXPECT_EQ(ask(tells, kAsker), 0);
  }
  let_->release();
  ASSERT_TRUE(take(10, "new"));
  EXPECT_EQ(ask(Operation::close, kAsker), ENOSPC);
}

TEST_F(TakenTest, AQueueHasAnEndWhichWhoAsksWaitsFor) {
  const std::string data(1 << 20, 'd');
  int taken = 0;
  while (taken < 100 && take(0, data)) ++taken;
  EXPECT_GE(taken, 8);
  EXPECT_LE(taken, 16);
  std::thread asks([&] {
    Request write{};
    write.operation = Operation::write;
    write.flags = kQueue;
    ServedFile* file = file_;
    std::vector<std::byte> answer;
    EXPECT_EQ(service().serve(write, file, kAsker, bytes_of(data), answer).value, data.size());
  });
  let_->release(taken);
  asks.join();
  let_->release();
  EXPECT_EQ(service().release(file_, kAsker), 0);
}

TEST_F(TakenTest, WhatATruncationCutsOffWasDoneBefore) {
  ASSERT_TRUE(take(90, std::string(20, 'n')));
  EXPECT_EQ(file_->cached->size(), file_->is_home ? 110U : 100U);
  std::thread asks([&] { EXPECT_EQ(ask(Operation::truncate, kAsker + 1), 0); });
  let_->release();
  asks.join();
  EXPECT_EQ(fs::file_size(root_ + "/one"), 0U);
  EXPECT_EQ(service().release(file_, kAsker), 0);
}

}  // namespace
}  // namespace nvio

void* operator new(std::size_t size) {
  const bool is_refused = nvio::g_times != UINT64_MAX && nvio::g_times-- == 0;
  void* memory = is_refused ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
