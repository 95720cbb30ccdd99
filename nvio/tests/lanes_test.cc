// The lanes of two managers' connection: every message arrives whole, once and in its lane's order,
// however the bytes between are cut; who takes nothing holds up nobody; what is kept is bounded,
// whatever the other end says.
#include "../transport/lanes.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>

namespace nvio {
namespace {

constexpr std::size_t kMost = 1 << 20;

// Two ends of a wire in this process, that takes and gives as many bytes at a time as it likes.
struct Wire {
  std::string to[2];  // not yet received by that end
  std::size_t room = 200000;
  bool cut = false;
  std::mt19937_64 random{1};
};

class End : public Channel {
 public:
  End(Wire& wire, int self) : wire_(wire), self_(self) {}
  ssize_t send_some(const iovec* vectors, int count, bool /*wait*/) override {
    if (wire_.cut) return failed(EPIPE);
    std::string& to = wire_.to[1 - self_];
    if (to.size() >= wire_.room) return failed(EAGAIN);
    std::size_t most = 1 + wire_.random() % (wire_.room - to.size());
    ssize_t sent = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t length = std::min(most, vectors[i].iov_len);
      to.append(static_cast<const char*>(vectors[i].iov_base), length);
      most -= length;
      sent += static_cast<ssize_t>(length);
    }
    return sent;
  }
  ssize_t receive_some(const iovec* vectors, int count, bool /*wait*/) override {
    std::string& from = wire_.to[self_];
    if (from.empty()) return wire_.cut ? 0 : failed(EAGAIN);
    std::size_t most = std::min<std::size_t>(from.size(), 1 + wire_.random() % 150000);
    ssize_t got = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t length = std::min(most, vectors[i].iov_len);
      std::memcpy(vectors[i].iov_base, from.data(), length);
      from.erase(0, length);
      most -= length;
      got += static_cast<ssize_t>(length);
    }
    return got;
  }
  int descriptor() const override { return -1; }
  bool is_dead() const override { return false; }
  bool is_same_user() const override { return true; }

 private:
  static ssize_t failed(int error) {
    errno = error;
    return -1;
  }
  Wire& wire_;
  int self_;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// One end with its lanes: asks in those that it opened, and answers in the other end's.
class Side : public Lanes::Taker {
 public:
  Side(Wire& wire, int self, std::uint64_t seed)
      : lanes(std::make_unique<End>(wire, self), self == 0, kMost), random_(seed) {}

  bool on_open(std::uint32_t lane) override {
    served.insert(lane);
    return true;
  }
  void on_opened(std::uint32_t lane) override {
    if (!is_silent) ask(lane);
  }
  bool on_message(std::uint32_t lane, std::span<const std::byte> message) override {
    const std::string text(reinterpret_cast<const char*>(message.data()), message.size());
    if (served.contains(lane)) {
      if (!mute.contains(lane)) lanes.send(lane, bytes_of("re:"), message);
      return true;
    }
    const bool is_right = text == "re:" + asked.at(lane);
    if (is_hostile) return is_right;
    EXPECT_TRUE(is_right) << "lane " << lane;
    ++answers;
    ask(lane);
    return true;
  }
  void on_end(std::uint32_t lane) override {
    served.erase(lane);
    asked.erase(lane);
    ++ends;
  }

  void ask(std::uint32_t lane) {
    constexpr std::size_t kLengths[] = {1, 100, 4096, kMostFrame, kMostFrame + 1, kMost - 3};
    std::string& text = asked[lane];
    text.assign(1 + random_() % kLengths[random_() % 6], static_cast<char>(random_()));
    const std::size_t cut = random_() % (text.size() + 1);
    lanes.send(lane, bytes_of(text).first(cut), bytes_of(text).subspan(cut));
  }
  void run() {
    lanes.receive(*this, room_);
    lanes.flush();
  }

  Lanes lanes;
  std::set<std::uint32_t> served, mute;
  std::map<std::uint32_t, std::string> asked;
  std::size_t answers = 0, ends = 0;
  bool is_hostile = false;  // the other end
  bool is_silent = false;

 private:
  std::mt19937_64 random_;
  std::vector<std::byte> room_ = std::vector<std::byte>(kLaneRoom);
};

std::string frame(std::uint32_t lane, FrameKind kind, const std::string& bytes = {}) {
  const Frame head{kFrameMagic, lane, kind, static_cast<std::uint32_t>(bytes.size())};
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + bytes;
}

// What the end that connected says: a lane, two messages in it of which the second is long, its
// end.
TEST(Lanes, SayWhatTheGoldenFramesSay) {
  const std::string path = std::string(NVIO_TESTDATA) + "/lanes.wire";
  std::ifstream file(path, std::ios::binary);
  const std::string want{std::istreambuf_iterator<char>(file), {}};
  Wire wire;
  wire.room = 2 * kMost;
  wire.to[0] =
      frame(1, FrameKind::open) + frame(0, FrameKind::opened) + frame(1, FrameKind::last, "?");
  Side side(wire, 0, 1);
  side.is_silent = true;
  const std::uint32_t lane = side.lanes.open();
  for (int i = 0; i < 100; ++i) side.run();
  side.lanes.send(lane, bytes_of("ab"), bytes_of("cd"));
  side.lanes.send(lane, bytes_of(std::string(kMostFrame, 'l')), bytes_of("!"));
  for (int i = 0; i < 100; ++i) side.lanes.flush();
  side.lanes.end(lane);
  for (int i = 0; i < 100; ++i) side.lanes.flush();
  if (std::getenv("NVIO_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << wire.to[1];
  }
  EXPECT_EQ(wire.to[1] == want, true);
}

TEST(Lanes, CarryEveryMessageWholeAndInItsLaneWhateverTheOrder) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Wire wire;
    wire.random.seed(seed);
    wire.room = seed % 2 == 0 ? 200000 : 1000;
    Side sides[2] = {{wire, 0, seed}, {wire, 1, seed + 100}};
    std::mt19937_64 random(seed);
    std::size_t opened = 0;
    for (int step = 0; step < 4000; ++step) {
      Side& side = sides[random() % 2];
      if (random() % 40 == 0 && opened < 60) {
        side.lanes.open();
        ++opened;
      } else if (random() % 400 == 0 && !side.asked.empty()) {
        const std::uint32_t lane = side.asked.begin()->first;
        side.asked.erase(lane);
        side.lanes.end(lane);
      }
      side.run();
      ASSERT_EQ(side.lanes.broken(), "") << "seed " << seed << " step " << step;
    }
    EXPECT_GT(sides[0].answers + sides[1].answers, 20U) << "seed " << seed;
    EXPECT_GT(sides[0].ends + sides[1].ends, 0U);
  }
}

TEST(Lanes, OneThatIsNotAnsweredHoldsUpNoOther) {
  Wire wire;
  Side asks(wire, 0, 1);
  Side serves(wire, 1, 2);
  const std::uint32_t slow = asks.lanes.open();
  const std::uint32_t quick = asks.lanes.open();
  serves.mute.insert(slow);
  std::size_t most = 0;
  while (asks.answers < 200) {
    asks.run();
    serves.run();
    ASSERT_EQ(asks.lanes.broken() + serves.lanes.broken(), "");
    most = std::max(most, asks.lanes.kept() + serves.lanes.kept());
  }
  EXPECT_TRUE(asks.asked.contains(quick));
  // Each end keeps a message each way of a lane, and what is on its way.
  EXPECT_LE(most, 10 * kMost);
}

// A message of many parts lets one that comes later through after one part.
TEST(Lanes, AShortMessageDoesNotWaitForAWholeLongOne) {
  Wire wire;
  wire.room = 1000;
  Side asks(wire, 0, 1);
  Side serves(wire, 1, 2);
  const std::uint32_t first = asks.lanes.open();
  const std::uint32_t second = asks.lanes.open();
  struct Order : Lanes::Taker {
    bool on_open(std::uint32_t) override { return true; }
    void on_opened(std::uint32_t) override {}
    bool on_message(std::uint32_t lane, std::span<const std::byte>) override {
      came.push_back(lane);
      return true;
    }
    void on_end(std::uint32_t) override {}
    std::vector<std::uint32_t> came;
  };
  Order here;
  std::vector<std::byte> room(kLaneRoom);
  Order there;
  for (int i = 0; i < 100; ++i) {
    asks.lanes.receive(here, room);
    serves.lanes.receive(there, room);
  }
  asks.lanes.send(first, bytes_of(std::string(kMost, 'l')));
  asks.lanes.send(second, bytes_of("short"));
  while (there.came.size() < 2) {
    asks.lanes.flush();
    serves.lanes.receive(there, room);
    ASSERT_EQ(asks.lanes.broken() + serves.lanes.broken(), "");
  }
  EXPECT_EQ(there.came, (std::vector<std::uint32_t>{second, first}));
}

TEST(Lanes, AWireThatIsCutIsToldAtBothEnds) {
  Wire wire;
  Side asks(wire, 0, 3);
  Side serves(wire, 1, 4);
  for (int i = 0; i < 20; ++i) asks.lanes.open();
  for (int i = 0; i < 500; ++i) {
    asks.run();
    serves.run();
  }
  wire.cut = true;
  for (int i = 0; i < 100; ++i) {
    asks.run();
    serves.run();
  }
  EXPECT_NE(asks.lanes.broken(), "");
  EXPECT_NE(serves.lanes.broken(), "");
}

// What a peer says that breaks the rules; `said` is read by the end that was connected to.
std::string broken_by(const std::string& said) {
  Wire wire;
  Side side(wire, 1, 1);
  wire.to[1] = said;
  for (int i = 0; i < 100 && side.lanes.broken().empty(); ++i) side.run();
  return side.lanes.broken();
}

TEST(Lanes, WhoBreaksARuleEndsTheConnection) {
  const std::string open = frame(0, FrameKind::open);
  EXPECT_EQ(broken_by(open + frame(0, FrameKind::last, "x") + frame(0, FrameKind::end)), "");
  EXPECT_NE(broken_by("no frame at all, and long enough"), "");
  EXPECT_NE(broken_by(frame(1, FrameKind::open)), "") << "a number of ours";
  EXPECT_NE(broken_by(frame(2, FrameKind::open)), "") << "not the next one";
  EXPECT_NE(broken_by(open + open), "");
  EXPECT_NE(broken_by(frame(0, FrameKind::last, "x")), "") << "never opened";
  EXPECT_NE(broken_by(frame(1, FrameKind::opened)), "") << "never asked for";
  EXPECT_NE(broken_by(open + frame(0, FrameKind::part)), "") << "a part of nothing";
  EXPECT_NE(broken_by(open + frame(0, FrameKind::end, "x")), "") << "bytes where none belong";
  EXPECT_NE(broken_by(open + frame(0, static_cast<FrameKind>(9))), "");
  std::string endless = open;
  for (std::size_t i = 0; i <= kMost / 60000; ++i) {
    endless += frame(0, FrameKind::part, std::string(60000, 'e'));
  }
  EXPECT_NE(broken_by(endless), "") << "longer than any message";
  std::string many;
  for (std::uint32_t i = 0; i <= kMostLanes; ++i) many += frame(2 * i, FrameKind::open);
  EXPECT_NE(broken_by(many), "");
}

TEST(Lanes, AnyBytesKeepNoMoreThanALaneMay) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    Wire wire;
    wire.random.seed(random());
    Side side(wire, 1, random());
    side.is_hostile = true;
    for (int k = 0; k < 3; ++k) side.lanes.open();
    std::string said;
    for (std::uint32_t k = 0; k < 40; ++k) {
      const auto lane = static_cast<std::uint32_t>(k < 4 ? 2UL * k : random() % 9);
      const auto kind = k < 4 ? FrameKind::open : static_cast<FrameKind>(1 + random() % 5);
      const bool has_bytes = kind == FrameKind::part || kind == FrameKind::last;
      said += frame(lane, kind, std::string(has_bytes ? random() % 60000 : 0, 'b'));
    }
    if (i % 2 == 0) said[random() % said.size()] = static_cast<char>(random());
    wire.to[1] = said;
    for (int k = 0; k < 200 && side.lanes.broken().empty(); ++k) {
      side.run();
      wire.to[0].clear();
      ASSERT_LE(side.lanes.kept(), (side.lanes.lanes() + 1) * 2 * kMost + (8U << 20));
    }
  }
}

}  // namespace
}  // namespace nvio
