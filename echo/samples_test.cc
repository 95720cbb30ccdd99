#include "samples.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace tare::echo {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
T at(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

class Samples : public testing::Test {
 protected:
  Samples() : folder_(fs::temp_directory_path() / ("tare-samples-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Samples() override { fs::remove_all(folder_); }

  const fs::path folder_;
};

// The golden files are read by the tests of every language that reads samples. To write them
// anew after a deliberate change of the format:
//   TARE_WRITE_GOLDEN=1 build/echo/echo_samples_test
void expect_golden(const fs::path& written, const std::string& name) {
  const fs::path golden = fs::path(TARE_TESTDATA) / name;
  if (std::getenv("TARE_WRITE_GOLDEN") != nullptr) {
    fs::copy_file(written, golden, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(read_all(written), read_all(golden)) << "differs from " << golden;
}

TEST_F(Samples, OfAClosedLoopAreWrittenAsTheGoldenFileHasThem) {
  const std::vector<Sample> samples = {{0, 0, 1'000'000'000, 1'000'000'000, 1'000'006'900},
                                       {0, 1, 1'000'007'000, 1'000'007'000, kLost},
                                       {0, 2, 2'000'007'100, 2'000'007'100, 2'000'014'000}};
  const fs::path path = folder_ / "closed.bin";
  write_samples(path, {.mode = Mode::kClosed, .payload_bytes = 64, .clients = {samples}});
  expect_golden(path, "closed.bin");
}

TEST_F(Samples, OfAnOpenLoopWithTwoClientsAreWrittenAsTheGoldenFileHasThem) {
  const int64_t late = int64_t{1} << 33;  // beyond 32 bits
  const std::vector<Sample> first = {{0, 0, late, late + 20'000, late + 31'000},
                                     {0, 1, late + 100'000, late + 121'000, late + 133'000}};
  const std::vector<Sample> second = {{1, 0, late + 50'000, late + 71'000, late + 82'000}};
  const fs::path path = folder_ / "open.bin";
  write_samples(path, {.mode = Mode::kOpen, .payload_bytes = 512, .clients = {first, second}});
  expect_golden(path, "open.bin");
}

TEST_F(Samples, HaveTheHeaderThatTheFormatDescribes) {
  const std::vector<Sample> samples(5);
  const fs::path path = folder_ / "header.bin";
  write_samples(path, {.mode = Mode::kOpen, .payload_bytes = 77, .clients = {samples, samples}});
  const std::string bytes = read_all(path);
  ASSERT_EQ(bytes.size(), 64 + 10 * 32);
  EXPECT_EQ(bytes.substr(0, 8), "TAREECHO");
  EXPECT_EQ(at<uint32_t>(bytes, 8), 1u);    // version
  EXPECT_EQ(at<uint32_t>(bytes, 12), 64u);  // header bytes
  EXPECT_EQ(at<uint32_t>(bytes, 16), 32u);  // record bytes
  EXPECT_EQ(at<uint32_t>(bytes, 20), 1u);   // CLOCK_MONOTONIC
  EXPECT_EQ(at<uint64_t>(bytes, 24), 10u);  // records
  EXPECT_EQ(at<uint32_t>(bytes, 32), 77u);  // payload bytes
  EXPECT_EQ(at<uint32_t>(bytes, 36), 2u);   // clients
  EXPECT_EQ(at<uint32_t>(bytes, 40), 2u);   // open
  EXPECT_EQ(bytes.substr(44, 20), std::string(20, '\0'));
}

TEST_F(Samples, AreWrittenToAPipeOrDeviceAndNeverPutInItsPlace) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_samples(pipe, SampleFile{});
  std::array<char, 128> bytes;
  EXPECT_EQ(read(reader, bytes.data(), bytes.size()), 64);
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(Samples, ThatCannotBeWrittenAreAnErrorThatNamesThePathAndLeavesNothing) {
  const std::vector<Sample> samples(100'000);
  const SampleFile file{.mode = Mode::kClosed, .payload_bytes = 64, .clients = {samples}};
  const auto refused = [&](const char* at) {
    try {
      write_samples(folder_ / at, file);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(refused("absent/samples.bin").find("absent/samples.bin"), std::string::npos);
  // A full disk.
  fs::create_symlink("/dev/full", folder_ / "full.bin.part");
  const std::string full = refused("full.bin");
  EXPECT_NE(full.find("full.bin"), std::string::npos) << full;
  EXPECT_NE(full.find("No space left on device"), std::string::npos) << full;
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace tare::echo
