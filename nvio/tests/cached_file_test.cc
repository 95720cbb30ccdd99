// The cache against a plain array: random reads, writes, truncations, syncs, write-backs, several
// handles, a store much smaller than the file; and what a crash of the processes leaves.
#include "../cache/cached_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "../recovery/recover.h"
#include "../system/real.h"
#include "cached_file_fixture.h"

namespace nvio {
namespace {

struct Model {
  std::string bytes;
  void write(std::uint64_t offset, const std::string& data) {
    if (bytes.size() < offset + data.size()) bytes.resize(offset + data.size());
    bytes.replace(offset, data.size(), data);
  }
};

std::string random_string(std::mt19937_64& random, std::size_t length) {
  std::string text(length, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

std::size_t random_length(std::mt19937_64& random) {
  static constexpr std::size_t kMost[] = {16, 300, 4096, 5000, 70000, 1200000};
  return 1 + random() % kMost[random() % std::size(kMost)];
}

// Else what a program writes after reads had the file admitted would never be found slow.
TEST_F(CachedFileTest, TimesWritesAlsoWhereReadsHadTheFileAdmitted) {
  settings_.file.admit = Admit::automatic;
  auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  ASSERT_NE(file, nullptr);
  seem_slow(*file);
  file->entry().write_samples = 0;
  char byte = 'x';
  file->read(0, &byte, 1);
  ASSERT_EQ(file->entry().mode, kActive);
  EXPECT_TRUE(file->is_undecided(Direction::write));
  for (std::uint32_t i = 0; i < kFirstSamples; ++i) {
    const FileRun run{std::uint64_t{i} * 5000, 1};
    EXPECT_TRUE(file->write_runs({&run, 1}, &byte));
  }
  EXPECT_FALSE(file->is_undecided(Direction::write));
  EXPECT_FALSE(file->takes_runs(Direction::write)) << "a local file's calls are not slow";
  ::close(fd);
  session->release(file);
}

// Not even for a moment: another thread may execute something just then.
TEST_F(CachedFileTest, NoProgramInheritsACopyOfItsDescriptors) {
  static const RealPosix* before = nullptr;
  static int copies = 0;
  static int inherited = 0;
  before = &real();
  RealPosix wrapped = *before;
  wrapped.dup = [](int fd) {
    const int copy = before->dup(fd);
    ++copies;
    if ((fcntl(copy, F_GETFD) & FD_CLOEXEC) == 0 || copy <= STDERR_FILENO) ++inherited;
    return copy;
  };
  set_real(&wrapped);
  auto session = join();
  const int fd = open_file();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  file->write(0, "written", 7);
  session->release(file);
  ::close(fd);
  set_real(before);
  EXPECT_GE(copies, 2);
  EXPECT_EQ(inherited, 0);
}

TEST_F(CachedFileTest, IsThePlainFileUnderRandomHistories) {
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    fs::remove(path_);
    std::mt19937_64 random(seed);
    settings_.file.admit = seed % 3 == 0 ? Admit::automatic : Admit::always;
    settings_.file.bypass_size = seed % 2 == 0 ? 100000 : 512 << 10;
    auto session = join();
    const int fd = open_file();
    CachedFile* file = session->acquire(fd, path_, settings_.file);
    ASSERT_NE(file, nullptr);
    if (seed % 2 == 0) seem_slow(*file);
    Model model;
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t offset = random() % (6 << 20);
      const auto what = random() % 100;
      if (what < 10) {  // as data sieving does: read, change a part, write back
        std::string window(random_length(random), '\0');
        ASSERT_GE(file->read_window(offset, window.data(), window.size()), 0);
        ASSERT_EQ(file->size(), model.bytes.size()) << "seed " << seed << " step " << step;
        window[random() % window.size()] = static_cast<char>(random());
        model.write(offset, window);
        ASSERT_EQ(file->write_window(offset, window.data(), window.size()),
                  static_cast<ssize_t>(window.size()));
      } else if (what < 50) {
        const std::string data = random_string(random, random_length(random));
        model.write(offset, data);
        ASSERT_EQ(file->write(offset, data.data(), data.size()), static_cast<ssize_t>(data.size()));
      } else if (what < 90) {
        std::string got(random_length(random), 'x');
        const ssize_t done = file->read(offset, got.data(), got.size());
        const std::string want =
            offset < model.bytes.size() ? model.bytes.substr(offset, got.size()) : "";
        ASSERT_EQ(done, static_cast<ssize_t>(want.size())) << "seed " << seed << " step " << step;
        got.resize(want.size());
        ASSERT_EQ(got == want, true) << "seed " << seed << " step " << step;
      } else if (what < 93) {
        ASSERT_EQ(file->sync(), 0);
      } else if (what < 96) {
        ASSERT_EQ(file->write_back(), 0);
        ASSERT_EQ(file_content() == model.bytes, true) << "seed " << seed << " step " << step;
      } else if (what < 98) {
        model.bytes.resize(offset);
        ASSERT_EQ(file->truncate(offset), 0);
      } else if (what < 99) {
        ASSERT_EQ(file->checkpoint(), 0);
      } else {
        ASSERT_EQ(file->size(), model.bytes.size());
      }
    }
    EXPECT_EQ(session->release(file), 0);
    ::close(fd);
    ASSERT_EQ(file_content() == model.bytes, true) << "seed " << seed;
    session.reset();
    EXPECT_FALSE(fs::exists(folder())) << "the last process takes the store away";
  }
}

// A process that is killed at a random moment, and what recovery makes of its store.
TEST_F(CachedFileTest, GivesBackTheLastSyncAfterAKill) {
  constexpr int kKills = 25;
  for (std::uint64_t seed = 0; seed < kKills; ++seed) {
    fs::remove(path_);
    fs::remove_all(folder());
    const int fd = open_file();
    // Shared with the child: how far it came.
    const std::string progress = root_ + "/progress";
    fs::remove(progress);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    constexpr std::uint64_t kCell = 5000;
    constexpr std::uint64_t kCells = 800;
    if (child == 0) {
      std::string why;
      auto session = Session::join(settings_, why);
      CachedFile* file = session == nullptr ? nullptr : session->acquire(fd, path_, settings_.file);
      if (file == nullptr) _exit(3);
      const int done = ::open(progress.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      std::mt19937_64 random(seed);
      for (std::uint32_t round = 1; round < 100000; ++round) {
        for (int i = 0; i < 20; ++i) {
          const std::string cell(kCell, static_cast<char>(round));
          if (file->write(random() % kCells * kCell, cell.data(), kCell) < 0) _exit(4);
        }
        if (file->sync() != 0) _exit(5);
        if (pwrite(done, &round, sizeof round, 0) < 0) _exit(6);
      }
      _exit(0);
    }
    std::mt19937_64 chance(seed + 1000);
    std::uint32_t synced = 0;
    // Killed once it has come some rounds far, at a moment that no one chose.
    const std::uint32_t enough = 1 + static_cast<std::uint32_t>(chance() % 60);
    while (synced < enough) {
      std::ifstream(progress, std::ios::binary)
          .read(reinterpret_cast<char*>(&synced), sizeof synced);
      ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    std::ifstream(progress, std::ios::binary).read(reinterpret_cast<char*>(&synced), sizeof synced);

    RecoverOptions options;
    options.keep = true;
    const RecoverReport first = recover(folder(), options);
    ASSERT_TRUE(first.good()) << first.problem << describe(first, false);
    const std::string once = file_content();
    options.keep = false;
    ASSERT_TRUE(recover(folder(), options).good());
    EXPECT_EQ(file_content() == once, true) << "recovery is not idempotent";
    EXPECT_FALSE(fs::exists(folder()));

    // Replays the child's draws: each cell is of its last synced round, or of a later one.
    std::vector<std::vector<std::uint32_t>> rounds(kCells, {0});
    std::mt19937_64 random(seed);
    for (std::uint32_t round = 1; round <= synced + 2; ++round) {
      for (int i = 0; i < 20; ++i) {
        auto& cell = rounds[random() % kCells];
        if (round <= synced) {
          cell = {round};
        } else {
          cell.push_back(round);
        }
      }
    }
    for (std::uint64_t cell = 0; cell < kCells; ++cell) {
      for (std::uint64_t i = 0; i < kCell; ++i) {
        const std::uint64_t at = cell * kCell + i;
        const auto byte = static_cast<unsigned char>(at < once.size() ? once[at] : 0);
        const bool allowed = std::any_of(
            rounds[cell].begin(), rounds[cell].end(),
            [&](std::uint32_t round) { return static_cast<unsigned char>(round) == byte; });
        ASSERT_TRUE(allowed) << "seed " << seed << " cell " << cell << " holds " << int{byte}
                             << " after " << synced << " syncs";
      }
    }
    ::close(fd);
  }
}

TEST_F(CachedFileTest, KeepsTheLogWithinABound) {
  const int fd = open_file();
  auto session = join();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  const std::string data(500000, 'l');
  std::uintmax_t largest = 0;
  for (int i = 0; i < 100; ++i) {
    file->write(0, data.data(), data.size());
    ASSERT_EQ(file->sync(), 0);
    largest = std::max(largest, fs::file_size(folder() + "/1.redo"));
  }
  EXPECT_LT(largest, 10U << 20) << "50 MB were synced through a log that may take 4 MiB and a sync";
  session->release(file);
  ::close(fd);
}

TEST_F(CachedFileTest, RecoverLatestGivesBackAllThatWasWritten) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) {
    const std::string data(100000, 'a');
    file.write(0, data.data(), data.size());
    file.sync();
    file.write(50, "never synced", 12);
  });
  RecoverOptions options;
  options.dry_run = true;
  EXPECT_TRUE(recover(folder(), options).good());
  EXPECT_EQ(file_content().size(), 0U) << "a dry run changes nothing";
  options.dry_run = false;
  options.latest = true;
  const RecoverReport report = recover(folder(), options);
  EXPECT_TRUE(report.good()) << describe(report, false);
  EXPECT_EQ(file_content().substr(50, 12), "never synced");
  EXPECT_EQ(file_content().size(), 100000U);
  ::close(fd);
}

// What is written past the cache has no record: the log may not cut it off.
TEST_F(CachedFileTest, RecoverKeepsWhatWentToTheFileAfterATruncation) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) {
    file.write(0, "before", 6);
    file.sync();
    file.truncate(0);
    file.entry().admit = static_cast<std::uint8_t>(Admit::automatic);  // the file seems fast
    file.write(2 << 20, "after", 5);
    file.sync();
  });
  const RecoverReport report = recover(folder(), {});
  EXPECT_TRUE(report.good()) << describe(report, false);
  EXPECT_TRUE(file_content() == std::string(2 << 20, '\0') + "after");
  ::close(fd);
}

TEST_F(CachedFileTest, RecoverLeavesARunningJobAlone) {
  auto session = join();
  const RecoverReport report = recover(folder(), {});
  EXPECT_NE(report.problem.find("still running"), std::string::npos) << report.problem;
}

TEST_F(CachedFileTest, RecoverRefusesWhatIsNoStore) {
  EXPECT_NE(recover(root_ + "/nowhere", {}).problem, "");
  EXPECT_NE(recover(root_, {}).problem.find("is no store"), std::string::npos);
}

TEST_F(CachedFileTest, RecoverDoesNotWriteIntoAnotherFileOfTheSameName) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) {
    file.write(0, "synced", 6);
    file.sync();
  });
  std::ofstream(path_ + ".new") << "somebody else's";
  fs::rename(path_ + ".new", path_);
  const RecoverReport report = recover(folder(), {});
  EXPECT_FALSE(report.good());
  EXPECT_EQ(file_content(), "somebody else's");
  EXPECT_TRUE(fs::exists(folder())) << "the store stays until someone decides";
  ::close(fd);
}

TEST_F(CachedFileTest, LeavesAForeignStoreAsItIs) {
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::owner_all);
  std::ofstream(folder() + "/segment") << std::string(100000, 'z');
  std::string why;
  EXPECT_EQ(Session::join(settings_, why), nullptr);
  EXPECT_NE(why.find("is no nvio segment"), std::string::npos) << why;
  std::ifstream file(folder() + "/segment");
  EXPECT_EQ(file.get(), 'z');
}

TEST_F(CachedFileTest, LeavesAFolderThatOthersCanEnterAlone) {
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::all);
  std::string why;
  EXPECT_EQ(Session::join(settings_, why), nullptr);
  EXPECT_NE(why.find("this user's alone"), std::string::npos) << why;
}

TEST_F(CachedFileTest, RefusesAStoreLargerThanItsShareOfTheRoom) {
  settings_.capacity = 1ULL << 60;
  std::string why;
  EXPECT_EQ(Session::join(settings_, why), nullptr);
  EXPECT_NE(why.find("NVIO_CAPACITY"), std::string::npos) << why;
}

TEST_F(CachedFileTest, SaysThatACapacityIsTooSmall) {
  settings_.capacity = 4096;
  std::string why;
  EXPECT_EQ(Session::join(settings_, why), nullptr);
  EXPECT_NE(why.find("4 KiB is too small"), std::string::npos) << why;
}

TEST_F(CachedFileTest, ReportsAWriteBackThatFailsAndKeepsWhatWasSynced) {
  const int fd = open_file();
  auto session = join();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  const std::string data(200000, 'b');
  // Beyond what the kernel lets a file hold: the write-back must fail there and nowhere else.
  ASSERT_EQ(file->write(0, data.data(), data.size()), 200000);
  ASSERT_EQ(file->sync(), 0);
  struct rlimit old {};
  getrlimit(RLIMIT_FSIZE, &old);
  struct rlimit small = old;
  small.rlim_cur = 1000;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const int error = session->release(file);
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(error, EFBIG);
  ::close(fd);
  session.reset();
  ASSERT_TRUE(fs::exists(folder()));
  EXPECT_TRUE(recover(folder(), {}).good());
  EXPECT_EQ(file_content() == data, true);
}

// Whoever was refused reads and writes the file itself: nobody may cache it behind its back.
TEST_F(CachedFileTest, TakesNoOtherFileOnceOneFoundNoRoom) {
  auto session = join();
  const auto acquire = [&](std::uint32_t number) {
    path_ = root_ + "/file" + std::to_string(number);
    const int fd = open_file();
    EXPECT_GE(fd, 0);
    CachedFile* file = session->acquire(fd, path_, settings_.file);
    ::close(fd);
    return file;
  };
  std::vector<CachedFile*> files;
  for (std::uint32_t i = 0; i < kMaxFiles; ++i) {
    files.push_back(acquire(i));
    ASSERT_NE(files.back(), nullptr) << i;
  }
  EXPECT_EQ(acquire(kMaxFiles), nullptr);
  EXPECT_EQ(session->release(files.back()), 0);
  files.pop_back();
  EXPECT_EQ(acquire(kMaxFiles), nullptr) << "it was refused once";
  files.push_back(acquire(0));
  EXPECT_EQ(files.back(), files.front()) << "what is in the table is known to all";
  for (CachedFile* file : files) EXPECT_EQ(session->release(file), 0);
}

// Another rank reads behind the new end, just before the file is cut there.
TEST_F(CachedFileTest, ServesNoOldBytesThatAreFetchedWhileTheFileIsCut) {
  std::ofstream(path_, std::ios::binary) << std::string(300000, 'o');
  const int fd = open_file();
  auto session = join();
  auto others = join();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  static CachedFile* reader = nullptr;
  reader = others->acquire(fd, path_, settings_.file);
  const RealPosix& plain = real();
  RealPosix wrapped = plain;
  wrapped.ftruncate = [](int cut, off_t size) {
    char byte = 0;
    EXPECT_EQ(reader->read(200000, &byte, 1), 1);
    EXPECT_EQ(byte, 'o');
    return ::ftruncate(cut, size);
  };
  set_real(&wrapped);
  EXPECT_EQ(file->truncate(10), 0);
  set_real(&plain);
  EXPECT_EQ(file->write(250000, "n", 1), 1);
  char byte = 'x';
  EXPECT_EQ(file->read(200000, &byte, 1), 1);
  EXPECT_EQ(byte, '\0');
  others->release(reader);
  session->release(file);
  ::close(fd);
}

// Another rank cuts the file between a piece's first look at its size and the fetch.
TEST_F(CachedFileTest, APieceBehindTheEndOfAFileThatIsCutMeanwhileIsNotDone) {
  settings_.file.admit = Admit::automatic;
  std::ofstream(path_, std::ios::binary) << std::string(1 << 20, 'o');
  const int fd = open_file();
  auto session = join();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  seem_slow(*file);
  char byte = 0;
  EXPECT_EQ(file->read(0, &byte, 1), 1);
  ASSERT_EQ(file->entry().mode, kActive);
  file->entry().fetch_seconds = 1e-6F;  // so that it pays
  file->entry().size = 100;
  const FileRun run{640 << 10, 1};
  EXPECT_FALSE(file->read_runs({&run, 1}, &byte));
  session->release(file);
  ::close(fd);
}

// Another rank's thread has the file left while a first block is fetched. What came later would
// keep bytes of a write that had begun before: nobody would write them back.
TEST_F(CachedFileTest, FetchesNothingOnceSomebodyStepsAside) {
  std::ofstream(path_, std::ios::binary) << std::string(4 * kBlockSize, 'o');
  const int fd = open_file();
  auto session = join();
  static CachedFile* file = nullptr;
  static std::thread leaver;
  file = session->acquire(fd, path_, settings_.file);
  const RealPosix& plain = real();
  RealPosix wrapped = plain;
  wrapped.preadv = [](int from, const iovec* vectors, int count, off_t offset) {
    if (!leaver.joinable()) {
      leaver = std::thread([] { EXPECT_EQ(file->step_aside(), 0); });
      while (file->entry().mode.load() == kActive) std::this_thread::yield();
    }
    return ::preadv(from, vectors, count, offset);
  };
  set_real(&wrapped);
  const FileRun runs[] = {{0, 1}, {2 * kBlockSize, 1}};
  char bytes[2];
  EXPECT_TRUE(file->read_runs(runs, bytes));
  leaver.join();
  set_real(&plain);
  EXPECT_EQ(session->counters().fetches, 1U);
  EXPECT_EQ(file->entry().blocks, 0U);
  session->release(file);
  ::close(fd);
}

TEST_F(CachedFileTest, WhatIsAskedForBehindTheEndMakesNoFileLonger) {
  const int fd = open_file();
  auto session = join();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  EXPECT_EQ(file->write(0, "abc", 3), 3);
  char window[10];
  EXPECT_EQ(file->read_window(5000, window, sizeof window), 0);
  EXPECT_EQ(file->size(), 3U);
  const RealPosix& plain = real();
  RealPosix wrapped = plain;
  wrapped.pwrite = [](int, const void*, std::size_t, off_t) -> ssize_t {
    errno = ENOSPC;
    return -1;
  };
  set_real(&wrapped);
  file->entry().admit = static_cast<std::uint8_t>(Admit::automatic);  // it goes past the cache
  EXPECT_EQ(file->write(2 << 20, "refused", 7), -1);
  set_real(&plain);
  EXPECT_EQ(file->size(), 3U);
  session->release(file);
  ::close(fd);
}

TEST_F(CachedFileTest, AFileThatCannotBeCutKeepsWhatWasWritten) {
  const int fd = open_file();
  auto session = join();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  const std::string written(100000, 'w');
  EXPECT_EQ(file->write(0, written.data(), written.size()), 100000);
  const RealPosix& plain = real();
  RealPosix wrapped = plain;
  wrapped.ftruncate = [](int, off_t) {
    errno = EPERM;
    return -1;
  };
  set_real(&wrapped);
  EXPECT_EQ(file->truncate(10), EPERM);
  set_real(&plain);
  std::string back(written.size(), '\0');
  EXPECT_EQ(file->read(0, back.data(), back.size()), 100000);
  EXPECT_TRUE(back == written);
  EXPECT_EQ(session->release(file), 0);
  ::close(fd);
  EXPECT_TRUE(file_content() == written);
}

// Another rank makes room just after the file was cut.
TEST_F(CachedFileTest, WhatIsWrittenBackWhileAFileIsCutMakesItNoLongerAgain) {
  const int fd = open_file();
  auto session = join();
  static CachedFile* file = nullptr;
  file = session->acquire(fd, path_, settings_.file);
  const std::string written(100000, 'w');
  EXPECT_EQ(file->write(0, written.data(), written.size()), 100000);
  const RealPosix& plain = real();
  RealPosix wrapped = plain;
  wrapped.ftruncate = [](int cut, off_t size) {
    const int result = ::ftruncate(cut, size);
    EXPECT_EQ(file->write_back(), 0);
    return result;
  };
  set_real(&wrapped);
  EXPECT_EQ(file->truncate(10), 0);
  set_real(&plain);
  EXPECT_EQ(file->size(), 10U);
  EXPECT_EQ(session->release(file), 0);
  ::close(fd);
  EXPECT_EQ(file_content(), std::string(10, 'w'));
}

TEST_F(CachedFileTest, SharesOneFileBetweenProcesses) {
  const int fd = open_file();
  auto session = join();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  file->write(10, "from parent", 11);
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    auto own = Session::join(settings_, why);
    const int other = ::open(path_.c_str(), O_RDWR);
    CachedFile* same = own->acquire(other, path_, settings_.file);
    char text[12] = {};
    const bool seen = same->read(10, text, 11) == 11 && std::strcmp(text, "from parent") == 0;
    same->write(100, "from child", 10);
    own->release(same);
    _exit(seen ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  char text[11] = {};
  EXPECT_EQ(file->read(100, text, 10), 10);
  EXPECT_STREQ(text, "from child");
  session->release(file);
  ::close(fd);
}

TEST_F(CachedFileTest, WaitsForASimulatedStoreAtEachAccessAndFlush) {
  settings_.kind = StoreKind::simulated;
  settings_.simulated = {.access_ns = 2000, .flush_ns = 600, .bytes_per_second = 1'000'000'000};
  const int fd = open_file();
  auto session = join();
  CachedFile* file = session->acquire(fd, path_, settings_.file);
  const auto waited = [&] { return session->counters().simulated_ns.exchange(0); };
  std::string bytes(4096, 'x');
  file->write(0, bytes.data(), bytes.size());
  EXPECT_EQ(waited(), 2000U + 4096U);
  EXPECT_EQ(file->read(100, bytes.data(), 1000), 1000);
  EXPECT_EQ(waited(), 2000U + 1000U);
  EXPECT_TRUE(file->try_read(0, bytes.data(), 8));
  EXPECT_EQ(waited(), 2000U + 8U);
  EXPECT_EQ(file->sync(), 0);
  EXPECT_GE(waited(), 2000U + 4096U + 600U) << "into the log, and flushed there";
  EXPECT_EQ(file->write_back(), 0);
  EXPECT_EQ(waited(), 2000U + 4096U);
  session->release(file);
  ::close(fd);
}

}  // namespace
}  // namespace nvio
