// What calibration makes in folders where others may have made something before.
#include "../predict/calibrate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace nvio {
namespace {

namespace fs = std::filesystem;

struct Enough {};

class CalibrateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/nvio-calibrate-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Till all its files are there.
  template <typename Look>
  void calibrate_till_it_reads(std::uint32_t clients, Look&& look) const {
    const Progress progress = [&](double, const std::string& what) {
      if (!what.starts_with("read ")) return;
      look();
      throw Enough{};
    };
    CalibrateOptions options;
    options.folder = options.store = folder_;
    options.clients = clients;
    Calibration calibration;
    std::string problem;
    EXPECT_THROW(calibrate(options, progress, calibration, problem), Enough) << problem;
  }

  std::string folder_;
};

TEST_F(CalibrateTest, WritesThroughNoLinkOfANameThatCanBeGuessed) {
  const std::string victim = folder_ + "/victim";
  std::ofstream(victim) << "mine";
  const std::string name = "nvio-calibrate-" + std::to_string(getpid());
  for (const std::string& one : {"." + name, "." + name + ".open", name + ".file"}) {
    fs::create_symlink(victim, folder_ + "/" + one);
  }
  calibrate_till_it_reads(1, [] {});
  EXPECT_EQ(fs::file_size(victim), 4U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 4) << "something is left";
}

TEST_F(CalibrateTest, TheFileHasAPlaceForEachLongCallOfEachProcess) {
  constexpr std::uint32_t kClients = 9;
  constexpr std::uint64_t kCalls = 8;
  std::uint64_t longest = 0;
  calibrate_till_it_reads(kClients, [&] {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.is_regular_file()) longest = std::max<std::uint64_t>(longest, entry.file_size());
    }
  });
  EXPECT_EQ(longest, kClients * kCalls << 20);
}

}  // namespace
}  // namespace nvio
