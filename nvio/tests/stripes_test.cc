// Stripes: what a file, a hint or a setting says of them, hostile layouts, and that of several
// nodes one alone writes each stripe.
#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "../cache/stripe.h"
#include "../store/segment.h"
#include "simulated_nodes.h"
#include "temporary_store.h"

namespace {

// What the file system says is the layout of every file; empty: it is no Lustre.
std::vector<std::byte> the_layout;

}  // namespace

// In place of the C library's: there is no Lustre here.
extern "C" ssize_t fgetxattr(int /*fd*/, const char* name, void* value, size_t size) noexcept {
  if (the_layout.empty() || std::strcmp(name, "lustre.lov") != 0) {
    errno = ENODATA;
    return -1;
  }
  if (size != 0 && size < the_layout.size()) {
    errno = ERANGE;
    return -1;
  }
  if (size != 0) std::memcpy(value, the_layout.data(), the_layout.size());
  return static_cast<ssize_t>(the_layout.size());
}

namespace nvio {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kV1 = 0x0BD10BD0;
constexpr std::uint32_t kV3 = 0x0BD30BD0;
constexpr std::uint32_t kComposite = 0x0BD60BD0;
constexpr std::uint32_t kRaid0 = 1;

// As a Lustre client answers for a file with two objects.
std::vector<std::byte> layout(std::uint32_t magic, std::uint32_t pattern, std::uint32_t stripe) {
  constexpr std::size_t kObject = 24;
  std::vector<std::byte> bytes(32 + (magic == kV3 ? 16 : 0) + 2 * kObject);
  const std::uint16_t count = 2;
  std::memcpy(bytes.data(), &magic, sizeof magic);
  std::memcpy(bytes.data() + 4, &pattern, sizeof pattern);
  std::memcpy(bytes.data() + 24, &stripe, sizeof stripe);
  std::memcpy(bytes.data() + 28, &count, sizeof count);
  return bytes;
}

TEST(Layout, OfLustreTellsItsStripe) {
  EXPECT_EQ(parse_lov(layout(kV1, kRaid0, 1 << 20)), 1U << 20);
  EXPECT_EQ(parse_lov(layout(kV3, kRaid0, 4 << 20)), 4U << 20);
  constexpr std::uint32_t kReleased = 0x80000000;
  EXPECT_EQ(parse_lov(layout(kV3, kReleased | kRaid0, 64 << 10)), 64U << 10);
}

TEST(Layout, WithoutOneStripeForTheWholeFileTellsNone) {
  EXPECT_FALSE(parse_lov({}));
  EXPECT_FALSE(parse_lov(layout(kComposite, kRaid0, 1 << 20)));
  EXPECT_FALSE(parse_lov(layout(0, kRaid0, 1 << 20)));
  EXPECT_FALSE(parse_lov(layout(kV1, 0x100, 1 << 20))) << "data on the metadata server";
  EXPECT_FALSE(parse_lov(layout(kV1, kRaid0, 0)));
  EXPECT_FALSE(parse_lov(layout(kV1, kRaid0, 12345)));
  for (const std::uint32_t magic : {kV1, kV3}) {
    const std::vector<std::byte> whole = layout(magic, kRaid0, 1 << 20);
    const std::size_t least = magic == kV1 ? 32 : 48;
    for (std::size_t length = 0; length < least; ++length) {
      EXPECT_FALSE(parse_lov(std::span(whole).first(length))) << length;
    }
  }
}

TEST(Layout, OfAnyBytesTellsAPossibleStripeOrNone) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200000; ++i) {
    std::vector<std::byte> bytes = layout(i % 2 == 0 ? kV1 : kV3, kRaid0, 1 << 20);
    bytes.resize(random() % (bytes.size() + 1));
    for (int k = 0; k < 3 && !bytes.empty(); ++k) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (const auto stripe = parse_lov(bytes)) {
      ASSERT_EQ(*stripe % (64 << 10), 0U);
      ASSERT_GT(*stripe, 0U);
      ASSERT_LE(*stripe, kMostStripe);
    }
  }
}

TEST(Stripe, IsTheSettingsThenLustresThenTheHintsThenTheBlockSize) {
  struct stat status {};
  status.st_blksize = 4096;
  FileSettings settings;
  the_layout.clear();
  EXPECT_EQ(stripe_of(0, status, settings), 0U) << "a page is no stripe";
  status.st_blksize = 16 << 20;
  EXPECT_EQ(stripe_of(0, status, settings), 16U << 20);
  settings.striping_unit = 8 << 20;
  EXPECT_EQ(stripe_of(0, status, settings), 8U << 20);
  the_layout = layout(kComposite, kRaid0, 4 << 20);
  EXPECT_EQ(stripe_of(0, status, settings), 8U << 20);
  the_layout = layout(kV3, kRaid0, 4 << 20);
  EXPECT_EQ(stripe_of(0, status, settings), 4U << 20);
  settings.stripe = 2 << 20;
  EXPECT_EQ(stripe_of(0, status, settings), 2U << 20);
  the_layout.clear();
}

class StripesTest : public ::testing::Test, protected TemporaryStore {
 protected:
  StripesTest() : TemporaryStore("stripes") {}

  void SetUp() override {
    settings_.kind = StoreKind::file;
    settings_.capacity = kGroupSize;  // much is written back long before the end
    settings_.nodes = 3;
    settings_.quiet = true;
    settings_.file.admit = Admit::always;
    the_layout.clear();
  }
  void TearDown() override { the_layout.clear(); }

  // Every node writes small pieces all over 24 MiB; then the most nodes that wrote to one stripe.
  std::size_t most_writers(std::uint64_t stripe) {
    constexpr std::uint64_t kSize = 24 << 20;
    fs::remove(path_);
    std::ofstream made(path_);
    fs::resize_file(path_, kSize);
    SimulatedNodes nodes(settings_, path_, 1);
    std::optional<OneOnEachNode> processes(std::in_place, settings_, path_);
    std::mt19937_64 random(7);
    std::string model(kSize, '\0');
    for (int i = 0; i < 900; ++i) {
      const auto node = static_cast<std::uint32_t>(random() % settings_.nodes);
      const std::string data(1 + random() % 3000, static_cast<char>(random()));
      const std::uint64_t offset = random() % (kSize - data.size());
      model.replace(offset, data.size(), data);
      EXPECT_EQ(processes->on(node).write(offset, data.data(), data.size()),
                static_cast<ssize_t>(data.size()));
    }
    processes->close();
    std::size_t most = 0;
    for (std::uint64_t at = 0; at < kSize; at += stripe) {
      most = std::max(most, nodes.writers_of(at, at + stripe).size());
    }
    EXPECT_EQ(nodes.writers_of(0, kSize).size(), settings_.nodes) << "every node has its share";
    processes.reset();
    std::ifstream left(path_, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(left), {}) == model, true);
    return most;
  }
};

TEST_F(StripesTest, WithoutAWordOfThemAreAMebibyte) {
  EXPECT_EQ(most_writers(1 << 20), 1U);
  EXPECT_GT(most_writers(4 << 20), 1U);
}

TEST_F(StripesTest, OfLustreAreWrittenByOneNodeEach) {
  the_layout = layout(kV3, kRaid0, 4 << 20);
  EXPECT_EQ(most_writers(4 << 20), 1U);
  settings_.file.spread = Spread::parts;
  EXPECT_EQ(most_writers(4 << 20), 1U);
}

TEST_F(StripesTest, OfASettingOrAHintAreWrittenByOneNodeEach) {
  settings_.file.striping_unit = 3 << 20;
  EXPECT_EQ(most_writers(3 << 20), 1U);
  settings_.file.stripe = 3 << 19;  // a MiB holds parts of two
  EXPECT_EQ(most_writers(3 << 19), 1U);
}

}  // namespace
}  // namespace nvio
