#include "frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace tare::probe {
namespace {

constexpr MacAddress kOwn = {std::byte{2}, std::byte{0}, std::byte{0},
                             std::byte{0}, std::byte{0}, std::byte{9}};

using Frame = std::vector<std::byte>;

Frame from_hex(const char* hex) {
  Frame frame;
  for (unsigned value = 0; std::sscanf(hex, "%2x", &value) == 1; hex += 2) {
    frame.push_back(static_cast<std::byte>(value));
    while (hex[2] == ' ') ++hex;
  }
  return frame;
}

// Frames as a Linux host sent them: 10.9.0.1 (02:00:00:00:00:01) to 10.9.0.2.
const char* const kArpRequest =
    "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a090001 000000000000 "
    "0a090002";
const char* const kPing =
    "020000000009 020000000001 0800 4500001e 00014000 400126ca 0a090001 0a090002 "
    "0800 b5b8 0102 0003 4142";
const char* const kDatagram =
    "020000000009 020000000001 0800 4500001e 00014000 401126ba 0a090001 0a090002 "
    "03e8 07d0 000a 0000 4142";

uint32_t ones_complement_sum(std::span<const std::byte> bytes) {
  uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    sum += std::to_integer<uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

TEST(AnswerFrame, TellsWhoAsksThatTheAddressIsHere) {
  Frame frame = from_hex(kArpRequest);
  EXPECT_EQ(answer_frame(frame, kOwn), Answer::kArp);
  EXPECT_EQ(frame, from_hex("020000000001 020000000009 0806 0001 0800 06 04 0002 020000000009 "
                            "0a090002 020000000001 0a090001"));
}

TEST(AnswerFrame, DoesNotClaimTheAskersOwnAddress) {
  Frame frame = from_hex(kArpRequest);
  frame.back() = std::byte{1};
  const Frame before = frame;
  EXPECT_EQ(answer_frame(frame, kOwn), Answer::kNone);
  EXPECT_EQ(frame, before);
}

TEST(AnswerFrame, AnswersAnEchoRequestWithRightChecksums) {
  Frame frame = from_hex(kPing);
  const auto icmp = std::span(frame).subspan(34);
  ASSERT_EQ(ones_complement_sum(icmp), 0xffffu) << "the test's own frame is wrong";
  EXPECT_EQ(answer_frame(frame, kOwn), Answer::kIcmpEcho);
  EXPECT_EQ(ones_complement_sum(icmp), 0xffffu);
  EXPECT_EQ(ones_complement_sum(std::span(frame).subspan(14, 20)), 0xffffu);
  EXPECT_EQ(icmp[0], std::byte{0});
  EXPECT_EQ(frame[29], std::byte{2});  // from 10.9.0.2
  EXPECT_EQ(frame[33], std::byte{1});  // to 10.9.0.1
}

TEST(AnswerFrame, SendsADatagramBackWithPortsSwapped) {
  Frame frame = from_hex(kDatagram);
  EXPECT_EQ(answer_frame(frame, kOwn), Answer::kUdpEcho);
  EXPECT_EQ(frame[34], std::byte{0x07});
  EXPECT_EQ(frame[36], std::byte{0x03});
  EXPECT_EQ(frame.back(), std::byte{0x42});
}

TEST(AnswerFrame, LeavesMulticastAndFragmentsAlone) {
  Frame multicast = from_hex(kDatagram);
  multicast[30] = std::byte{224};
  EXPECT_EQ(answer_frame(multicast, kOwn), Answer::kNone);
  Frame fragment = from_hex(kDatagram);
  fragment[20] = std::byte{0x20};
  EXPECT_EQ(answer_frame(fragment, kOwn), Answer::kNone);
}

// Whatever comes: no byte beyond the frame is touched, and what is not answered is not changed.
TEST(AnswerFrame, SurvivesEveryTruncationAndRandomChange) {
  std::mt19937 random(11);
  for (const char* hex : {kArpRequest, kPing, kDatagram}) {
    const Frame whole = from_hex(hex);
    for (int round = 0; round < 20'000; ++round) {
      Frame frame = whole;
      frame.resize(random() % (whole.size() + 1));
      for (unsigned change = random() % 4; change > 0 && !frame.empty(); --change) {
        frame[random() % frame.size()] = static_cast<std::byte>(random());
      }
      frame.shrink_to_fit();  // so that a sanitizer sees every byte beyond
      const Frame before = frame;
      if (answer_frame(frame, kOwn) == Answer::kNone) {
        ASSERT_EQ(frame, before);
      }
    }
  }
}

}  // namespace
}  // namespace tare::probe
