// A process that is refused memory: what its program reads and writes is right all the same.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>
#include <string>

#include "../nodes/job.h"
#include "../nodes/other_jobs.h"
#include "../recovery/left_over.h"
#include "cached_file_fixture.h"

namespace nvio {
namespace {

// How much may be had at once, how often still, and whether nothing can be had once that is over.
std::atomic<std::size_t> g_most{SIZE_MAX};
std::atomic<std::uint64_t> g_times{UINT64_MAX};
std::atomic<bool> g_for_good{false};

// While it lives.
class ShortOfMemory {
 public:
  explicit ShortOfMemory(std::size_t most, std::uint64_t times = UINT64_MAX,
                         bool for_good = false) {
    g_most.store(most);
    g_times.store(times);
    g_for_good.store(for_good);
  }
  ~ShortOfMemory() {
    g_for_good.store(false);
    g_most.store(SIZE_MAX);
    g_times.store(UINT64_MAX);
  }
  ShortOfMemory(const ShortOfMemory&) = delete;
  ShortOfMemory& operator=(const ShortOfMemory&) = delete;
};

template <typename Act>
auto without_memory(Act&& act) {
  const ShortOfMemory none(0);
  return act();
}

class MemoryTest : public CachedFileTest {};

TEST_F(MemoryTest, WithoutAnyAFileIsThePlainFile) {
  std::mt19937_64 random(1);
  auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  std::string model;
  for (int step = 0; step < 2000; ++step) {
    const std::uint64_t offset = random() % (5 << 20);
    const std::size_t length = 1 + random() % (step % 10 == 0 ? 300000 : 500);
    const std::string data(length, static_cast<char>('a' + step % 26));
    std::string got(length, '\0');
    if (step % 100 == 99) {
      const int error = without_memory(
          [&] { return step % 200 == 99 ? file->sync() : file->truncate(model.size() / 2); });
      if (step % 200 != 99) model.resize(model.size() / 2);
      ASSERT_EQ(error, 0);
    } else if (random() % 3 == 0) {
      const ssize_t done =
          without_memory([&] { return file->read(offset, got.data(), got.size()); });
      const std::string want = offset < model.size() ? model.substr(offset, length) : "";
      ASSERT_EQ(done, static_cast<ssize_t>(want.size()));
      ASSERT_EQ(got.substr(0, want.size()) == want, true) << step;
    } else {
      const ssize_t done =
          without_memory([&] { return file->write(offset, data.data(), data.size()); });
      ASSERT_EQ(done, static_cast<ssize_t>(length));
      if (model.size() < offset + length) model.resize(offset + length);
      model.replace(offset, length, data);
    }
  }
  ASSERT_EQ(without_memory([&] { return file->write_back(); }), 0);
  EXPECT_EQ(file_content() == model, true);
  ASSERT_EQ(without_memory([&] { return file->step_aside(); }), 0);
  session->release(file);
  ::close(fd);
  EXPECT_EQ(file_content() == model, true);
}

TEST_F(MemoryTest, AWriteThatCannotBeQueuedIsDoneAtOnce) {
  std::string why;
  auto job = Job::join(settings_, why);
  ASSERT_NE(job, nullptr) << why;
  const int fd = open_file();
  JobFile* file = job->acquire(fd, path_, settings_.file);
  const std::string data(1 << 20, 'd');
  const auto length = static_cast<ssize_t>(data.size());
  ASSERT_EQ(file->write_later(0, data.data(), data.size()), length);
  const ssize_t done = [&] {
    const ShortOfMemory little(4096);
    return file->write_later(data.size() / 2, data.data(), data.size());
  }();
  EXPECT_EQ(done, length);
  EXPECT_EQ(job->release(file), 0);
  ::close(fd);
  EXPECT_EQ(file_content(), std::string(3 << 19, 'd'));
}

// Wherever an opening has come by then.
TEST_F(MemoryTest, WhatCannotBeOpenedLeavesNothingOpen) {
  std::string why;
  const int fd = open_file();
  bool is_open = false;
  for (std::uint64_t times = 0; !is_open; ++times) {
    auto job = Job::join(settings_, why);
    ASSERT_NE(job, nullptr) << why;
    JobFile* file = nullptr;
    try {
      const ShortOfMemory soon(SIZE_MAX, times);
      file = job->acquire(fd, path_, settings_.file);
    } catch (const std::bad_alloc&) {
      EXPECT_FALSE(job->has_open_files()) << times;
      file = job->acquire(fd, path_, settings_.file);
      ASSERT_NE(file, nullptr);
      ASSERT_EQ(file->write(times, "x", 1), 1);
      EXPECT_EQ(job->release(file), 0);
      EXPECT_EQ(file_content(), std::string(times + 1, 'x')) << "its last close wrote nothing";
      continue;
    }
    is_open = true;
    job->release(file);
  }
  ::close(fd);
  expect_store_to_go();
}

// Wherever joining has come by then: nobody replays it over what a program writes that goes on
// without the store.
TEST_F(MemoryTest, WhatAKilledRunLeftIsRefusedToAllOnceOneLackedTheMemoryForIt) {
  std::uint64_t refused = 0;
  bool is_settled = false;
  for (std::uint64_t times = 0; !is_settled; ++times) {
    fs::remove_all(folder());
    fs::remove(path_);
    const int fd = open_file();
    be_killed_after(fd, [](CachedFile& file) { file.write(0, "of the killed", 13); });
    ::close(fd);
    std::string remark;
    std::string why;
    try {
      const std::string store = folder();
      const ShortOfMemory soon(SIZE_MAX, times, true);
      is_settled = settle_left_over(store, 1, remark, why);
    } catch (const std::bad_alloc&) {
      // What then opens no files: nothing was made of the store yet, or all.
      ASSERT_EQ(file_content(), has_store(settings_) ? "" : "of the killed") << times;
      continue;
    }
    if (is_settled) continue;
    ++refused;
    EXPECT_NE(why.find("nvio recover --latest " + folder()), std::string::npos) << why;
    std::ofstream(path_, std::ios::in) << "newer";
    const std::string newer = file_content();
    EXPECT_EQ(Session::join(settings_, why), nullptr) << times;
    EXPECT_EQ(file_content(), newer) << times;
    EXPECT_TRUE(has_store(settings_));
  }
  EXPECT_GT(refused, 20U);
  EXPECT_EQ(file_content(), "of the killed");
}

}  // namespace
}  // namespace nvio

void* operator new(std::size_t size) {
  const bool is_refused = size > nvio::g_most.load(std::memory_order_relaxed) ||
                          (nvio::g_times.load(std::memory_order_relaxed) != UINT64_MAX &&
                           nvio::g_times.fetch_sub(1) == 0);
  if (is_refused && nvio::g_for_good.load()) nvio::g_most.store(0);
  void* memory = is_refused ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
