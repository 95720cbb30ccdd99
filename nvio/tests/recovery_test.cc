// Recovery: whose stores it touches, as whom, and what it makes of damaged or doubtful ones.
#include <grp.h>
#include <sys/stat.h>

#include "../recovery/log_writer.h"
#include "../recovery/recover.h"
#include "../store/medium.h"
#include "cached_file_fixture.h"

namespace nvio {
namespace {

class RecoveryTest : public CachedFileTest {};

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
  const int fd = open_file();
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  ::close(fd);
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::owner_all);
  for (const int number : {2, 10}) {
    const std::string text = "log " + std::to_string(number);
    std::string why;
    const auto medium = open_file_medium(folder() + "/" + std::to_string(number) + ".redo", why);
    ASSERT_NE(medium, nullptr) << why;
    LogPosition position;
    LogWriter writer(*medium, position);
    ASSERT_EQ(writer.start({status.st_dev, status.st_ino, path_, false}), 0);
    ASSERT_EQ(writer.extent(0, text.data(), text.size()), 0);
    ASSERT_EQ(writer.commit(text.size()), 0);
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

}  // namespace
}  // namespace nvio
