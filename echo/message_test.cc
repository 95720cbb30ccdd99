#include "message.h"

#include <gtest/gtest.h>

#include <random>

#include "assembler.h"

namespace tare::echo {
namespace {

std::vector<std::byte> encode(uint32_t requester, uint32_t sequence, std::size_t payload_bytes) {
  std::vector<std::byte> bytes(kHeaderBytes + payload_bytes);
  const auto payload = std::span(bytes).subspan(kHeaderBytes);
  PayloadSource(7, payload_bytes).fill(sequence, payload);
  encode_header({.requester = requester,
                 .sequence = sequence,
                 .checksum = checksum_of(requester, sequence, payload),
                 .payload = {}},
                static_cast<uint32_t>(payload_bytes), std::span(bytes).first<kHeaderBytes>());
  return bytes;
}

TEST(Message, ComesBackAsItWasEncoded) {
  for (const std::size_t payload_bytes : {0, 1, 64, 512, 65483}) {
    const auto bytes = encode(0xdeadbeef, 41, payload_bytes);
    const auto message = decode_message(bytes);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->requester, 0xdeadbeef);
    EXPECT_EQ(message->sequence, 41u);
    EXPECT_EQ(message->payload.size(), payload_bytes);
    EXPECT_EQ(message->checksum, checksum_of(0xdeadbeef, 41, message->payload));
  }
}

TEST(Message, IsRefusedWhenItsLengthIsNotTheAnnouncedOne) {
  auto bytes = encode(1, 2, 64);
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_message(bytes));
  bytes.resize(bytes.size() - 2);
  EXPECT_FALSE(decode_message(bytes));
  EXPECT_FALSE(decode_message(std::span(bytes).first(kHeaderBytes - 1)));
  EXPECT_FALSE(decode_message({}));
}

TEST(Message, IsRefusedWithoutOurMagic) {
  auto bytes = encode(1, 2, 64);
  bytes[0] ^= std::byte{1};
  EXPECT_FALSE(decode_message(bytes));
}

TEST(Checksum, TellsEveryFlippedBitAndEveryOtherNumber) {
  auto bytes = encode(1, 2, 64);
  const auto payload = std::span(bytes).subspan(kHeaderBytes);
  const uint64_t right = checksum_of(1, 2, payload);
  EXPECT_NE(checksum_of(1, 3, payload), right);
  EXPECT_NE(checksum_of(3, 2, payload), right);
  for (std::size_t bit = 0; bit < payload.size() * 8; ++bit) {
    payload[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(checksum_of(1, 2, payload), right);
    payload[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(PayloadSource, RepeatsForASeedAndDiffersBetweenRequestsAndSeeds) {
  std::vector<std::byte> one(64);
  std::vector<std::byte> other(64);
  const PayloadSource source(1, 64);
  source.fill(5, one);
  PayloadSource(1, 64).fill(5, other);
  EXPECT_EQ(one, other);
  source.fill(6, other);
  EXPECT_NE(one, other);
  PayloadSource(2, 64).fill(5, other);
  EXPECT_NE(one, other);
}

// However the stream is cut into pieces, the messages come out whole and in order.
TEST(Assembler, FindsTheMessagesOfAStreamInAnyPieces) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> stream;
    std::vector<std::vector<std::byte>> sent;
    for (uint32_t i = 0; i < 20; ++i) {
      sent.push_back(encode(9, i, random() % 300));
      stream.insert(stream.end(), sent.back().begin(), sent.back().end());
    }
    Assembler assembler(kHeaderBytes + random() % 100);
    std::vector<std::vector<std::byte>> found;
    for (std::size_t at = 0; at < stream.size();) {
      const auto room = assembler.room();
      ASSERT_FALSE(room.empty());
      const std::size_t piece =
          std::min({room.size(), stream.size() - at, std::size_t{1} + random() % 200});
      std::copy_n(stream.begin() + static_cast<std::ptrdiff_t>(at), piece, room.begin());
      at += piece;
      ASSERT_TRUE(assembler.add(piece, 300, [&](std::span<const std::byte> bytes) {
        found.emplace_back(bytes.begin(), bytes.end());
      }));
    }
    EXPECT_EQ(found, sent);
  }
}

TEST(Assembler, RefusesAStreamThatAnnouncesTooMuch) {
  const auto bytes = encode(9, 1, 301);
  Assembler assembler(64);
  std::copy_n(bytes.begin(), kHeaderBytes, assembler.room().begin());
  EXPECT_FALSE(assembler.add(kHeaderBytes, 300, [](std::span<const std::byte>) {}));
}

}  // namespace
}  // namespace tare::echo
