#include "doomed_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace walks {
namespace {

class DoomedFileTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What wait(2) says of a process that has a doomed file and sends itself the signal.
  int ended_by_signal(void (*before)(int)) {
    const pid_t child = fork();
    if (child == 0) {
      std::signal(GetParam(), before);
      const DoomedFile file(path(), true);
      std::ofstream(path()) << "unfinished";
      std::raise(GetParam());
      _exit(std::filesystem::exists(path()) ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }

  std::string path() const { return folder_ + "/file"; }

 private:
  std::string folder_ = std::filesystem::temp_directory_path() / "doomed.XXXXXX";
};

TEST_P(DoomedFileTest, GoesWithTheProcessThatASignalEnds) {
  const int status = ended_by_signal(SIG_DFL);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam()) << status;
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_P(DoomedFileTest, StaysWithTheProcessThatWasToldToIgnoreTheSignal) {
  EXPECT_EQ(ended_by_signal(SIG_IGN), 0);
}

INSTANTIATE_TEST_SUITE_P(Signals, DoomedFileTest, testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace walks
