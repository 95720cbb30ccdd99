// `nvio list` looks at what other users have laid down.
#include "../cli/list.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "../recovery/recover.h"
#include "../store/store_folder.h"
#include "../system/real.h"
#include "cached_file_fixture.h"
#include "mounted.h"

namespace nvio {
namespace {

class ListTest : public CachedFileTest {
 protected:
  nlohmann::json listed() {
    testing::internal::CaptureStdout();
    EXPECT_EQ(list_stores({{settings_.store}, true}), 0);
    return nlohmann::json::parse(testing::internal::GetCapturedStdout());
  }

  void leave_store() {
    const int fd = open_file();
    be_killed_after(fd, [](CachedFile& file) { file.write(0, "left", 4); });
    ::close(fd);
  }
};

TEST_F(ListTest, TellsWhatAKilledJobLeft) {
  leave_store();
  const nlohmann::json stores = listed();
  ASSERT_EQ(stores.size(), 1U);
  EXPECT_EQ(stores[0]["path"], folder());
  EXPECT_EQ(stores[0]["state"], "dead");
  EXPECT_EQ(stores[0]["job"], "test");
  EXPECT_EQ(stores[0]["unwritten_bytes"], 4);
  EXPECT_EQ(stores[0]["files"][0]["path"], path_);
}

// Numbers of files are each file system's own.
TEST_F(ListTest, TakesNoStoreForARunningJobsForALockElsewhere) {
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts";
  const std::string elsewhere = root_ + "/elsewhere";
  const Mounted of_stores("tmpfs", settings_.store);
  const Mounted of_others("tmpfs", elsewhere);
  leave_store();
  struct stat alive {};
  ASSERT_EQ(stat((folder() + "/alive").c_str(), &alive), 0);
  int locked = -1;
  for (int i = 0; i < 100 && locked < 0; ++i) {
    locked = ::open((elsewhere + "/" + std::to_string(i)).c_str(), O_RDWR | O_CREAT, 0600);
    struct stat status {};
    ASSERT_EQ(fstat(locked, &status), 0);
    if (status.st_ino != alive.st_ino) ::close(std::exchange(locked, -1));
  }
  ASSERT_GE(locked, 0);
  ASSERT_EQ(flock(locked, LOCK_SH), 0);
  const nlohmann::json stores = listed();
  ::close(locked);
  ASSERT_EQ(stores.size(), 1U);
  EXPECT_EQ(stores[0]["state"], "dead");
}

// A job that ends just then would leave its store.
TEST_F(ListTest, KeepsNobodyFromHavingAStoreAlone) {
  leave_store();
  static LifeLock other;
  other = LifeLock(::open((folder() + "/alive").c_str(), O_RDWR | O_CLOEXEC));
  static const RealPosix* plain = nullptr;
  plain = &real();
  RealPosix wrapped = *plain;
  wrapped.close = [](int fd) {
    EXPECT_TRUE(other.take_alone()) << "while it is looked at";
    other.give_up();
    return plain->close(fd);
  };
  set_real(&wrapped);
  EXPECT_EQ(StoreFolder(folder()).lock(), LifeLock::Kind::none);
  set_real(plain);
  other = LifeLock();
}

// A link to what only root may read is no way to have it read.
TEST_F(ListTest, LooksAsTheStoresOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  leave_store();
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(chown(folder().c_str(), kNobody, kNobody), 0);  // and not what lies in it
  const nlohmann::json stores = listed();
  ASSERT_EQ(stores.size(), 1U);
  EXPECT_EQ(stores[0]["state"], "unreadable");
  EXPECT_TRUE(stores[0]["files"].empty());
}

TEST_F(ListTest, IsNotHeldUpByWhatIsNoFile) {
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::owner_all);
  for (const char* name : {"/segment", "/alive", "/1.redo"}) {
    ASSERT_EQ(mkfifo((folder() + name).c_str(), 0600), 0);
  }
  const nlohmann::json stores = listed();
  ASSERT_EQ(stores.size(), 1U);
  EXPECT_EQ(stores[0]["state"], "unreadable");
  EXPECT_FALSE(recover(folder(), {}).good());
}

// Anybody may name a folder of /dev/shm, and root may do what stands behind "next".
TEST_F(ListTest, TellsNobodysWordsAsCommands) {
  const std::string name = settings_.store + "/nvio-1000-it's;touch \x1bX";
  fs::create_directory(name);
  fs::permissions(name, fs::perms::owner_all);
  std::ofstream(name + "/alive") << "";
  const nlohmann::json stores = listed();
  ASSERT_EQ(stores.size(), 1U);
  EXPECT_EQ(stores[0]["next"],
            "nvio recover '" + settings_.store + "/nvio-1000-it'\\''s;touch \x1bX'");
  testing::internal::CaptureStdout();
  EXPECT_EQ(list_stores({{settings_.store}, false}), 0);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_NE(text.find("touch ?X"), std::string::npos) << text;
}

// The owner may do so at any time, also after its size was looked at. Whoever reads it then is
// ended by SIGBUS.
TEST_F(ListTest, GoesOnWhereASegmentIsCutWhileItIsRead) {
  leave_store();
  fs::create_directory(folder() + "-other");
  std::ofstream(folder() + "-other/alive") << "";
  static std::string segment;
  segment = folder() + "/segment";
  static off_t size = 0;
  size = static_cast<off_t>(fs::file_size(segment));
  static const RealPosix* plain = nullptr;
  plain = &real();
  RealPosix wrapped = *plain;
  wrapped.fstat = [](int fd, struct stat* status) {
    const int result = plain->fstat(fd, status);
    struct stat named {};
    if (stat(segment.c_str(), &named) == 0 && named.st_ino == status->st_ino) {
      status->st_size = size;
      EXPECT_EQ(truncate(segment.c_str(), 0), 0);
    }
    return result;
  };
  set_real(&wrapped);
  const nlohmann::json stores = listed();
  set_real(plain);
  ASSERT_EQ(stores.size(), 2U);
  EXPECT_EQ(stores[0]["state"], "unreadable");
  EXPECT_EQ(stores[1]["state"], "dead");
}

}  // namespace
}  // namespace nvio
