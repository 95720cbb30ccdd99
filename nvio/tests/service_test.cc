// What a manager does for those who ask it, without a connection.
#include "../manager/service.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "../system/real.h"
#include "temporary_store.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;

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
    wanted.access = kReads;
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

}  // namespace
}  // namespace nvio
