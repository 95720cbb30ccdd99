// Recovery: whose stores it touches, as whom, and what it makes of damaged or doubtful ones.
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "../log/writer.h"
#include "../medium/medium.h"
#include "../recovery/recover.h"
#include "../recovery/target.h"
#include "../system/real.h"
#include "cached_file_fixture.h"
#include "mounted.h"

namespace nvio {
namespace {

class RecoveryTest : public CachedFileTest {
 protected:
  // Makes a log of the file as a job leaves it, in a store without working memory: write(writer).
  template <typename Write>
  void leave_log(int number, Write&& write) {
    const int fd = open_file();
    struct stat status {};
    ASSERT_EQ(fstat(fd, &status), 0);
    const FileMark mark = mark_of(fd, path_);
    ::close(fd);
    fs::create_directory(folder());
    fs::permissions(folder(), fs::perms::owner_all);
    std::string why;
    const auto medium = open_file_medium(folder() + "/" + std::to_string(number) + ".redo", why);
    ASSERT_NE(medium, nullptr) << why;
    LogPosition position;
    LogWriter writer(*medium, position);
    ASSERT_EQ(writer.start({status.st_dev, status.st_ino, path_, false, mark}), 0);
    write(writer);
  }
};

// All that recovery writes, counted; and what befalls the file between two of its calls.
class Watched {
 public:
  explicit Watched(std::function<void()> before_growing = {})
      : meanwhile_(std::move(before_growing)) {
    the_ = this;
    wrapped_.pwrite = [](int fd, const void* data, std::size_t length, off_t offset) {
      ++the_->writes_;
      return the_->plain_->pwrite(fd, data, length, offset);
    };
    wrapped_.fstat = [](int fd, struct stat* status) {
      const int result = the_->plain_->fstat(fd, status);
      // Once all is written it is asked how long the file is.
      if (the_->writes_ > 0 && the_->meanwhile_) std::exchange(the_->meanwhile_, {})();
      return result;
    };
    set_real(&wrapped_);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() { set_real(plain_); }
  std::size_t writes() const { return writes_; }

 private:
  static inline Watched* the_ = nullptr;
  const RealPosix* plain_ = &real();
  RealPosix wrapped_ = *plain_;
  std::size_t writes_ = 0;
  std::function<void()> meanwhile_;
};

// Of this process, in bytes, as /proc/self/status names it.
std::uint64_t memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size())) << 10;
  }
  return 0;
}

constexpr std::size_t kPiece = 4 << 10;

TEST_F(RecoveryTest, WritesALongLogInFewCallsAndHoldsLittleOfItInMemory) {
  constexpr std::size_t kPieces = 16 << 10;
  constexpr std::size_t kLog = kPieces * kPiece;
  leave_log(1, [](LogWriter& writer) {
    std::string piece(kPiece, ' ');
    for (std::size_t i = 0; i < kPieces; ++i) {
      std::memcpy(piece.data(), &i, sizeof i);
      ASSERT_EQ(writer.extent(i * kPiece, piece.data(), kPiece), 0);
      if (i % 256 == 255) {
        ASSERT_EQ(writer.commit((i + 1) * kPiece), 0);
      }
    }
  });
  // The peak begins anew.
  ASSERT_TRUE((std::ofstream("/proc/self/clear_refs") << 5).flush().good());
  const std::uint64_t before = memory("VmRSS:");
  ASSERT_GT(before, 0U);
  const Watched watched;
  EXPECT_TRUE(recover(folder(), {}).good());
#ifndef __SANITIZE_THREAD__  // whose own memory grows with what is looked at
  EXPECT_LT(memory("VmHWM:"), before + kLog / 8);
#endif
  EXPECT_LE(watched.writes(), kPieces / 64);
  std::ifstream file(path_, std::ios::binary);
  std::string piece(kPiece, '\0');
  for (std::size_t i = 0; i < kPieces; ++i) {
    file.read(piece.data(), kPiece);
    ASSERT_EQ(std::memcmp(piece.data(), &i, sizeof i), 0) << i;
  }
}

TEST_F(RecoveryTest, WritesTheLatestBytesInFewCalls) {
  constexpr std::size_t kPieces = 2 << 10;
  settings_.capacity = 16 << 20;
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) {
    const std::string piece(kPiece, 'x');
    for (std::size_t i = 0; i < kPieces; ++i) file.write(i * kPiece, piece.data(), kPiece);
  });
  ::close(fd);
  RecoverOptions options;
  options.latest = true;
  const Watched watched;
  EXPECT_TRUE(recover(folder(), options).good());
  EXPECT_LE(watched.writes(), kPieces / 64);
  EXPECT_TRUE(file_content() == std::string(kPieces * kPiece, 'x'));
}

// Another job appends between recovery's looking how long the file is and its making it longer.
TEST_F(RecoveryTest, KeepsWhatIsAppendedWhileItMakesTheFileLonger) {
  constexpr std::uint64_t kSize = 100;
  leave_log(1, [](LogWriter& writer) {
    ASSERT_EQ(writer.extent(0, "synced", 6), 0);
    ASSERT_EQ(writer.commit(kSize), 0);
  });
  const Watched watched([&] {
    const std::string beyond(2 * kSize, 'b');
    const int fd = open_file(O_WRONLY | O_APPEND);
    EXPECT_EQ(::write(fd, beyond.data(), beyond.size()), static_cast<ssize_t>(beyond.size()));
    ::close(fd);
  });
  EXPECT_TRUE(recover(folder(), {}).good());
  EXPECT_EQ(file_content(), "synced" + std::string(2 * kSize, 'b'));
}

TEST_F(RecoveryTest, KeepsWhatIsAppendedWhereAFileGetsLongerByTruncationAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts";
  constexpr std::uint64_t kSize = 100;
  const std::string folder_of_file = root_ + "/ramfs";
  const Mounted ramfs("ramfs", folder_of_file);  // it knows no fallocate
  path_ = folder_of_file + "/file";
  leave_log(1, [](LogWriter& writer) {
    ASSERT_EQ(writer.extent(0, "synced", 6), 0);
    ASSERT_EQ(writer.commit(kSize), 0);
  });
  RecoverOptions options;
  options.force = true;  // nor does it tell its files apart
  {
    const Watched watched([&] { std::ofstream(path_, std::ios::app) << std::string(kSize, 'b'); });
    const RecoverReport report = recover(folder(), options);
    EXPECT_FALSE(report.good());
    ASSERT_EQ(report.files.size(), 1U);
    EXPECT_NE(report.files[0].problem.find("truncate -s 100 " + path_), std::string::npos)
        << report.files[0].problem;
  }
  EXPECT_EQ(file_content(), "synced" + std::string(kSize, 'b'));
  // What it makes itself nobody appends to.
  fs::rename(path_, path_ + ".moved");
  options.to = folder_of_file + "/elsewhere";
  EXPECT_TRUE(recover(folder(), options).good());
  ASSERT_TRUE(fs::exists(options.to + path_));
  EXPECT_EQ(fs::file_size(options.to + path_), kSize);
}

// As where the log found no room: the store is all that has these bytes.
TEST_F(RecoveryTest, KeepsAStoreWhoseBytesNoSyncCompletedAndSaysHowToHaveThem) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) { file.write(0, "unsynced", 8); });
  const RecoverReport report = recover(folder(), {});
  EXPECT_FALSE(report.good());
  const std::string told = describe(report, false);
  EXPECT_NE(told.find("left out: 8 bytes"), std::string::npos) << told;
  EXPECT_NE(told.find("nvio recover --latest " + folder()), std::string::npos) << told;
  EXPECT_NE(told.find("the store " + folder() + " stays"), std::string::npos) << told;
  EXPECT_EQ(file_content(), "");
  RecoverOptions options;
  options.latest = true;
  EXPECT_TRUE(recover(folder(), options).good());
  EXPECT_EQ(file_content(), "unsynced");
  ::close(fd);
}

// By an nvio of another version, or where the memory to map it lacks.
TEST_F(RecoveryTest, KeepsAStoreWhoseWorkingMemoryCannotBeRead) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) {
    file.write(0, "synced", 6);
    file.sync();
    file.write(0, "later!", 6);
  });
  ::close(fd);
  const auto raise_version = [&](int by) {
    std::fstream segment(folder() + "/segment", std::ios::in | std::ios::out | std::ios::binary);
    char version = 0;
    segment.seekg(8).get(version);
    segment.seekp(8).put(static_cast<char>(version + by));
  };
  raise_version(1);
  RecoverOptions options;
  options.latest = true;
  const RecoverReport report = recover(folder(), options);
  EXPECT_FALSE(report.good());
  const std::string told = describe(report, false);
  EXPECT_NE(told.find("with the nvio that the job ran with"), std::string::npos) << told;
  EXPECT_TRUE(fs::exists(folder() + "/segment"));
  raise_version(-1);
  EXPECT_TRUE(recover(folder(), options).good());
  EXPECT_EQ(file_content(), "later!");
}

TEST_F(RecoveryTest, RefusesAStoreOfWhichItCannotTellWhetherItsJobRuns) {
  leave_synced();
  const std::string alive = folder() + "/alive";
  fs::remove(alive);
  ASSERT_EQ(mkfifo(alive.c_str(), 0600), 0);
  const RecoverReport report = recover(folder(), {});
  EXPECT_NE(report.problem.find("cannot open " + alive), std::string::npos) << report.problem;
  EXPECT_EQ(file_content(), "");
}

TEST_F(RecoveryTest, TakesWhatACheckpointMadeDurableForSynced) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) {
    file.write(0, "synced", 6);
    file.sync();
    file.checkpoint();
    file.write(0, "later", 5);
  });
  const RecoverReport report = recover(folder(), {});
  EXPECT_TRUE(report.good()) << describe(report, false);
  EXPECT_EQ(file_content(), "synced");
  ::close(fd);
}

TEST_F(RecoveryTest, RefusesAStoreThatOthersThanItsOwnerCanWriteInto) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) {
    file.write(0, "synced", 6);
    file.sync();
  });
  for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(folder(), fs::perms::owner_all | others);
    const RecoverReport report = recover(folder(), {});
    EXPECT_NE(report.problem.find("others than its owner"), std::string::npos) << report.problem;
  }
  EXPECT_EQ(file_content(), "");
  fs::permissions(folder(), fs::perms::owner_all);
  EXPECT_TRUE(recover(folder(), {}).good());
  EXPECT_EQ(file_content(), "synced");
  ::close(fd);
}

// A store says itself which paths are written: its owner must not get at what root's groups may
// write.
TEST_F(RecoveryTest, ActsAsTheStoresOwnerWithoutRootsGroups) {
  if (geteuid() != 0) GTEST_SKIP() << "only root acts for others";
  constexpr uid_t kNobody = 65534;
  const fs::perms enter = fs::perms::others_read | fs::perms::others_exec;
  for (const std::string& way : {root_, settings_.store}) {
    fs::permissions(way, fs::perms::owner_all | enter);
  }
  const int fd = open_file();
  ASSERT_EQ(fchmod(fd, 0660), 0);  // root's, and its group's
  be_killed_after(fd, [](CachedFile& file) {
    file.write(0, "synced", 6);
    file.sync();
  });
  ASSERT_EQ(chown(folder().c_str(), kNobody, kNobody), 0);
  for (const auto& entry : fs::directory_iterator(folder())) {
    ASSERT_EQ(chown(entry.path().c_str(), kNobody, kNobody), 0);
  }
  const std::string store = folder();
  const pid_t child = fork();
  if (child == 0) {
    const gid_t of_root = 0;
    if (setgroups(1, &of_root) != 0) _exit(2);
    const RecoverReport report = recover(store, {});
    _exit(report.problem.empty() && report.files.size() == 1 && !report.good() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(file_content(), "");
  ::close(fd);
}

// Two logs of one file: the later one's bytes are the newer ones.
TEST_F(RecoveryTest, ReplaysLogsInTheOrderOfTheirNumbers) {
  for (const int number : {2, 10}) {
    const std::string text = "log " + std::to_string(number);
    leave_log(number, [&](LogWriter& writer) {
      ASSERT_EQ(writer.extent(0, text.data(), text.size()), 0);
      ASSERT_EQ(writer.commit(text.size()), 0);
    });
  }
  EXPECT_TRUE(recover(folder(), {}).good());
  EXPECT_EQ(file_content(), "log 10");
}

// A process takes a group of the table, and is killed before it says of which file and MiB it is.
TEST_F(RecoveryTest, TakesNoBlockForThatOfAGroupThatWasOnlyTaken) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file, Session& session) {
    file.write(0, "first", 5);
    file.write(kGroupSize, "second", 6);
    session.segment().header().fresh_group++;
  });
  ::close(fd);
  RecoverOptions options;
  options.latest = true;
  const RecoverReport report = recover(folder(), options);
  EXPECT_TRUE(report.good()) << describe(report, false);
  EXPECT_TRUE(file_content() == "first" + std::string(kGroupSize - 5, '\0') + "second");
}

// A new file of the old one's name that the file system gave the old one's inode, as ext4 does at
// once.
class ReusedInodeTest : public RecoveryTest {
 protected:
  void be_replaced(int fd, const std::string& content) {
    struct stat before {};
    ASSERT_EQ(fstat(fd, &before), 0);
    ::close(fd);
    fs::remove(path_);
    for (int i = 0; i < 100; ++i) {
      std::ofstream(path_) << content;
      struct stat now {};
      ASSERT_EQ(stat(path_.c_str(), &now), 0);
      if (now.st_ino == before.st_ino) return;
      fs::rename(path_, root_ + "/other" + std::to_string(i));
    }
    std::ofstream(path_) << content;
  }
};

TEST_F(ReusedInodeTest, NothingIsReplayedIntoANewFileOfTheSameInode) {
  for (const bool latest : {false, true}) {
    const int fd = open_file();
    be_killed_after(fd, [latest](CachedFile& file) {
      file.write(0, "of the old file", 15);
      if (!latest) file.sync();
    });
    be_replaced(fd, "new");
    RecoverOptions options;
    options.latest = latest;
    const RecoverReport report = recover(folder(), options);
    EXPECT_FALSE(report.good());
    EXPECT_NE(describe(report, false).find("another file of this name"), std::string::npos);
    EXPECT_NE(describe(report, false).find("15 bytes"), std::string::npos) << "what is not written";
    EXPECT_EQ(file_content(), "new");
    options.to = root_ + "/saved" + (latest ? "-latest" : "");
    EXPECT_TRUE(recover(folder(), options).good());
    EXPECT_EQ(file_content(), "new");
    std::ifstream saved(options.to + path_);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(saved), {}), "of the old file");
    EXPECT_FALSE(fs::exists(folder()));
    fs::remove(path_);
  }
}

// The table of a job whose other processes live on.
TEST_F(ReusedInodeTest, NothingOfAKilledProcesssFileIsServedInItsPlace) {
  const auto survivor = join();
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) { file.write(0, "of the old file", 15); });
  be_replaced(fd, "new");
  const int fresh = open_file();
  CachedFile* file = survivor->acquire(fresh, path_, settings_.file);
  ::close(fresh);
  ASSERT_NE(file, nullptr);
  std::string got(15, ' ');
  EXPECT_EQ(file->read(0, got.data(), got.size()), 3);
  EXPECT_EQ(file->write(3, "er", 2), 2);
  EXPECT_EQ(survivor->release(file), 0);
  EXPECT_EQ(file_content(), "newer");
}

TEST_F(RecoveryTest, WhatIsForcedIsNotWhatIsKnownToBeAnother) {
  leave_synced();
  std::ofstream(path_ + ".new") << "new";
  fs::rename(path_ + ".new", path_);
  RecoverOptions options;
  options.force = true;
  EXPECT_FALSE(recover(folder(), options).good());
  EXPECT_EQ(file_content(), "new");
}

// A full disk, say: what was made there is no hindrance once there is room.
TEST_F(RecoveryTest, WhatCouldNotBeSavedElsewhereCanBeSavedThereLater) {
  leave_synced();
  fs::rename(path_, path_ + ".moved");
  RecoverOptions options;
  options.to = root_ + "/elsewhere";
  const pid_t child = fork();
  if (child == 0) {
    constexpr rlimit kThree{3, 3};
    std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &kThree);
    _exit(recover(folder(), options).good() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(options.to + path_));
  EXPECT_TRUE(recover(folder(), options).good());
  std::ifstream saved(options.to + path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(saved), {}), "synced");
}

TEST_F(RecoveryTest, WhatCannotBeReadKeepsNothingElseFromBeingSaved) {
  leave_synced();
  std::ofstream(folder() + "/2.redo") << "of nothing that could be read";
  fs::rename(path_, path_ + ".moved");
  RecoverOptions options;
  options.to = root_ + "/elsewhere";
  EXPECT_FALSE(recover(folder(), options).good());
  std::ifstream saved(options.to + path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(saved), {}), "synced");
  EXPECT_TRUE(fs::exists(folder()));
}

// Whichever of them the store names first.
TEST_F(RecoveryTest, SavesAFileBesideOneThatHasItsNameAndPartial) {
  const std::string names[] = {root_ + "/x", root_ + "/x.partial"};
  for (const int first : {0, 1}) {
    for (const int number : {1, 2}) {
      path_ = names[number == 1 ? first : 1 - first];
      leave_log(number, [&](LogWriter& writer) {
        ASSERT_EQ(writer.extent(0, path_.data(), path_.size()), 0);
        ASSERT_EQ(writer.commit(path_.size()), 0);
      });
    }
    for (const std::string& name : names) fs::remove(name);
    RecoverOptions options;
    options.to = root_ + "/elsewhere" + std::to_string(first);
    const RecoverReport report = recover(folder(), options);
    EXPECT_TRUE(report.good()) << describe(report, false);
    for (const std::string& name : names) {
      path_ = options.to + name;
      EXPECT_EQ(file_content(), name);
    }
    const auto saved = fs::directory_iterator(options.to + root_);
    EXPECT_EQ(std::distance(begin(saved), end(saved)), 2) << "what ends in .partial is not saved";
    EXPECT_FALSE(fs::exists(folder()));
  }
}

TEST_F(RecoveryTest, ANewFileTakesNoNameThatSomethingHas) {
  const NewFile made{path_, path_ + ".partial"};
  std::ofstream(made.partial) << "made";
  std::ofstream(path_) << "another's";
  EXPECT_FALSE(take_name(made));
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(file_content(), "another's");
  EXPECT_TRUE(fs::exists(made.partial));
  fs::remove(path_);
  EXPECT_TRUE(take_name(made));
  EXPECT_EQ(file_content(), "made");
  EXPECT_FALSE(fs::exists(made.partial));
}

TEST_F(RecoveryTest, WhatIsSavedElsewhereReplacesNothing) {
  leave_synced();
  fs::rename(path_, path_ + ".moved");
  std::ofstream(path_) << "new";
  RecoverOptions options;
  options.to = "/";
  EXPECT_FALSE(recover(folder(), options).good());
  EXPECT_EQ(file_content(), "new");
}

TEST(FileMark, HandleAndBirthMustBothAgreeAndAFolderThatNothingChangedDoesForThem) {
  FileMark one{};
  one.birth = 5;
  one.handle_type = 1;
  one.handle_length = 8;
  one.handle[7] = std::byte{1};
  EXPECT_EQ(is_same_file(one, one), Same::yes);
  FileMark other = one;
  other.handle[7] = std::byte{2};
  EXPECT_EQ(is_same_file(one, other), Same::no);
  other = one;
  other.birth = 6;
  EXPECT_EQ(is_same_file(one, other), Same::no);
  other.birth = 0;
  EXPECT_EQ(is_same_file(one, other), Same::yes);
  EXPECT_EQ(is_same_file(FileMark{}, FileMark{}), Same::in_doubt);
  FileMark beside{};
  beside.folder = 2;
  beside.folder_changed = 7;
  EXPECT_EQ(is_same_file(beside, beside), Same::yes);
  EXPECT_EQ(is_same_file(beside, one), Same::in_doubt);
  other = beside;
  ++other.folder_changed;
  EXPECT_EQ(is_same_file(beside, other), Same::in_doubt);
}

}  // namespace
}  // namespace nvio
