// What two processes make at once in a folder that they share. They may have the same number, being
// on two machines or in two containers: here one is inside a call of the other.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <utility>
#include <vector>

#include "../nodes/rendezvous.h"
#include "../store/segment.h"
#include "../system/real.h"
#include "temporary_store.h"

namespace nvio {
namespace {

class MadeAtOnceTest : public ::testing::Test, protected TemporaryStore {
 protected:
  MadeAtOnceTest() : TemporaryStore("made") {}
  void TearDown() override { set_real(plain_); }

  // The other comes when the first has written what has no name yet.
  template <typename Act>
  void meanwhile(Act&& act) {
    other_ = std::forward<Act>(act);
    wrapped_.pwrite = [](int fd, const void* data, std::size_t length, off_t offset) {
      const ssize_t done = plain_->pwrite(fd, data, length, offset);
      if (other_) std::exchange(other_, {})();
      return done;
    };
    wrapped_.ftruncate = [](int fd, off_t size) {
      if (other_) std::exchange(other_, {})();
      return plain_->ftruncate(fd, size);
    };
    set_real(&wrapped_);
  }

  static inline const RealPosix* plain_ = &real();
  static inline std::function<void()> other_;
  RealPosix wrapped_ = *plain_;
};

TEST_F(MadeAtOnceTest, ProcessesOfOneNumberAgreeOnTheJobsSecret) {
  settings_.rendezvous = root_;
  std::vector<std::uint8_t> first;
  std::vector<std::uint8_t> second;
  std::string why;
  meanwhile([&] { EXPECT_TRUE(job_secret(settings_, second, why)) << why; });
  EXPECT_TRUE(job_secret(settings_, first, why)) << why;
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.size(), 32U);
  remove_rendezvous(settings_);
  EXPECT_FALSE(std::filesystem::exists(rendezvous_folder(settings_)));
}

TEST_F(MadeAtOnceTest, WhatAKilledOneMadeOfTheSecretGoesWithIt) {
  settings_.rendezvous = root_;
  std::vector<std::uint8_t> secret;
  std::string why;
  ASSERT_TRUE(job_secret(settings_, secret, why)) << why;
  const std::string path = rendezvous_folder(settings_) + "/secret";
  std::filesystem::copy_file(path, path + ".0123abcd");
  remove_rendezvous(settings_);
  EXPECT_FALSE(std::filesystem::exists(rendezvous_folder(settings_)));
}

TEST_F(MadeAtOnceTest, ProcessesOfOneNumberShareOneSegment) {
  const std::string path = root_ + "/segment";
  std::unique_ptr<Segment> second;
  std::string why;
  meanwhile([&] { second = Segment::open_or_create(path, 2 << 20, why); });
  const auto first = Segment::open_or_create(path, 2 << 20, why);
  ASSERT_NE(first, nullptr) << why;
  ASSERT_NE(second, nullptr) << why;
  first->header().nodes.store(7);
  EXPECT_EQ(second->header().nodes.load(), 7U);
}

}  // namespace
}  // namespace nvio
