// Several nodes of one job, each a Job of this process with its real manager, and a file of theirs.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "../nodes/job.h"
#include "cached_file_fixture.h"

namespace nvio {

// Each rank with connections of its own, and by way of its own node's manager.
class JobsTest : public CachedFileTest, public testing::WithParamInterface<Connections> {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    settings_.nodes = 3;
    settings_.connections = GetParam();
    settings_.quiet = true;
  }

  void TearDown() override {
    jobs_.clear();
    expect_store_to_go();
    CachedFileTest::TearDown();
  }

  void join_all() {
    for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
      Settings own = settings_;
      own.node = node;
      std::string why;
      jobs_.push_back(Job::join(own, why));
      ASSERT_NE(jobs_.back(), nullptr) << why;
    }
  }

  std::vector<JobFile*> open_everywhere() {
    std::vector<JobFile*> files;
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT, 0600);
    for (auto& job : jobs_) files.push_back(job->acquire(fd, path_, settings_.file));
    ::close(fd);
    return files;
  }

  int release(const std::vector<JobFile*>& files) {
    int error = 0;
    for (std::size_t i = 0; i < files.size(); ++i) error |= jobs_[i]->release(files[i]);
    return error;
  }

  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace nvio
