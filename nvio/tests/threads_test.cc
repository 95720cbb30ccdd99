// One process's threads on one file, all at once: transfers to neighbouring bytes of the same
// blocks, syncs and write-backs among them, a store smaller than the file, and an end by stepping
// aside while they write. Meant for the thread sanitizer; the bytes are checked in any build.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "../cache/cached_file.h"
#include "../cache/writers.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kThreads = 4;
constexpr std::uint64_t kPiece = 1000;  // bytes: no page or block is one thread's alone
constexpr std::uint64_t kPieces = 4000;

// Writes and reads back random pieces of its own, every kThreads-th of the file.
void work(CachedFile& file, std::uint32_t self, std::vector<char>& last) {
  std::mt19937_64 random(self);
  std::vector<char> buffer(kPiece);
  for (int step = 0; step < 1500; ++step) {
    const std::uint64_t piece = random() % (kPieces / kThreads);
    const std::uint64_t offset = (piece * kThreads + self) * kPiece;
    if (random() % 2 == 0) {
      const auto value = static_cast<char>(1 + random() % 100);
      std::memset(buffer.data(), value, kPiece);
      ASSERT_EQ(file.write(offset, buffer.data(), kPiece), static_cast<ssize_t>(kPiece));
      last[piece] = value;
    } else if (last[piece] != 0) {
      ASSERT_EQ(file.read(offset, buffer.data(), kPiece), static_cast<ssize_t>(kPiece));
      for (const char byte : buffer) ASSERT_EQ(byte, last[piece]) << "piece " << piece;
    }
    if (self == 0 && step % 300 == 299) {
      ASSERT_EQ(file.sync(), 0);
    }
    if (self == 1 && step % 300 == 299) {
      ASSERT_EQ(file.write_back(), 0);
    }
    if (self == 2 && step == 1200) {
      ASSERT_EQ(file.step_aside(), 0);
    }
  }
}

class Threads : public ::testing::TestWithParam<Admit> {};

TEST_P(Threads, EachSeeTheirOwnBytesWhateverTheOthersDo) {
  char name[] = "/tmp/nvio-threads-XXXXXX";
  const std::string root = mkdtemp(name);
  Settings settings;
  settings.store = root;
  settings.session = "threads";
  settings.capacity = 2 << 20;
  settings.file.admit = GetParam();
  const std::string path = root + "/file";
  std::string why;
  auto session = Session::join(settings, why);
  ASSERT_NE(session, nullptr) << why;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  CachedFile* file = session->acquire(fd, path, settings.file);
  ASSERT_NE(file, nullptr);

  std::vector<std::vector<char>> last(kThreads, std::vector<char>(kPieces / kThreads));
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { work(*file, i, last[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(session->release(file), 0);
  ::close(fd);

  std::ifstream stream(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream), {}};
  for (std::uint64_t piece = 0; piece < kPieces; ++piece) {
    const char value = last[piece % kThreads][piece / kThreads];
    if (value == 0) continue;
    const std::string want(kPiece, value);
    EXPECT_EQ(content.substr(piece * kPiece, kPiece) == want, true) << "piece " << piece;
  }
  session.reset();
  fs::remove_all(root);
}

INSTANTIATE_TEST_SUITE_P(Admission, Threads, ::testing::Values(Admit::always, Admit::automatic));

// In the child of a vfork, whose memory is its parent's, the parent would wait for them for ever.
TEST(WritersTest, MakeNoThreadsInAnotherProcessThanTheirOwn) {
  Writers writers;
  const pid_t child = fork();
  if (child == 0) {
    const auto threads = [] {
      return std::distance(fs::directory_iterator("/proc/self/task"), {});
    };
    const auto before = threads();
    std::size_t written = 0;
    const int error = writers.all(8, [&](std::size_t) {
      ++written;
      return 0;
    });
    _exit(error != 0 || written != 8 ? 2 : threads() == before ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace nvio
