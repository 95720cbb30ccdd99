// Recovery of what the nodes of one job left: to new files of which each has a part, together.
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "../recovery/recover.h"
#include "../store/life_lock.h"
#include "../system/real.h"
#include "cached_file_fixture.h"

namespace nvio {
namespace {

// Two nodes of one job have each a part of a file that is gone.
class NodesRecoveryTest : public CachedFileTest {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    settings_.nodes = 2;
    const int fd = open_file();
    for (std::uint32_t node = 0; node < 2; ++node) {
      settings_.node = node;
      be_killed_after(fd, [node](CachedFile& file) {
        file.write(std::uint64_t{node} * 6, node == 0 ? "first " : "second", 6);
        file.sync();
      });
      stores_.push_back(folder() + ".node" + std::to_string(node));
    }
    ::close(fd);
    fs::rename(path_, path_ + ".moved");
    options_.to = root_ + "/elsewhere";
  }

  bool save() {
    const auto reports = recover_job(stores_, options_);
    return std::all_of(reports.begin(), reports.end(), [](const auto& one) { return one.good(); });
  }

  // At the first such call of this process.
  template <typename Replace>
  void be_killed_saving(Replace&& replace) {
    const pid_t child = fork();
    if (child == 0) {
      RealPosix wrapped = real();
      replace(wrapped);
      set_real(&wrapped);
      save();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, SIGKILL);
  }

  bool has_all_stores() const { return fs::exists(stores_[0]) && fs::exists(stores_[1]); }
  std::string saved() const {
    std::ifstream file(options_.to + path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // What lies where it is saved.
  std::vector<std::string> made() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(options_.to + root_)) {
      files.push_back(entry.path());
    }
    return files;
  }

  std::vector<std::string> stores_;
  RecoverOptions options_;
};

TEST_F(NodesRecoveryTest, AJobsStoresStayUntilAllOfThemAreSaved) {
  {
    LifeLock running(::open((stores_[1] + "/alive").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(running.share());
    EXPECT_FALSE(save());
  }
  EXPECT_TRUE(has_all_stores());
  EXPECT_FALSE(fs::exists(options_.to + path_));
  EXPECT_TRUE(save());
  EXPECT_EQ(saved(), "first second");
  EXPECT_FALSE(fs::exists(stores_[0]) || fs::exists(stores_[1]));
}

TEST_F(NodesRecoveryTest, WhatIsKilledBeforeAllIsSavedCanBeBegunAnew) {
  static int files = 0;
  be_killed_saving([](RealPosix& posix) {
    posix.fsync = [](int fd) {
      struct stat status {};
      if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && ++files == 2) {
        kill(getpid(), SIGKILL);
      }
      return 0;
    };
  });
  EXPECT_TRUE(has_all_stores());
  EXPECT_FALSE(fs::exists(options_.to + path_));
  ASSERT_EQ(made().size(), 1U);
  EXPECT_EQ(fs::path(made()[0]).extension(), ".partial");
  EXPECT_TRUE(fs::remove(made()[0]));
  EXPECT_TRUE(save());
  EXPECT_EQ(saved(), "first second");
}

TEST_F(NodesRecoveryTest, WhatIsKilledOnceAllIsSavedHasSavedAll) {
  be_killed_saving(
      [](RealPosix& posix) { posix.unlink = [](const char*) { return kill(getpid(), SIGKILL); }; });
  EXPECT_EQ(saved(), "first second");
  EXPECT_EQ(made(), std::vector<std::string>{options_.to + path_});
}

}  // namespace
}  // namespace nvio
