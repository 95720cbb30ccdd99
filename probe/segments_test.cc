#include "segments.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>

#include <cstring>
#include <random>
#include <vector>

namespace tare::probe {
namespace {

constexpr std::size_t kIp = kVnetHeader + 14;
constexpr std::size_t kOptions = 12;  // of TCP: its timestamps
constexpr std::size_t kTcp = kIp + sizeof(iphdr);
constexpr std::size_t kData = kTcp + sizeof(tcphdr) + kOptions;
constexpr std::size_t kSegment = 1448;

using Frame = std::vector<std::byte>;

struct Headers {
  VnetHeader vnet;
  iphdr ip;
  tcphdr tcp;
};

Headers headers_of(const Frame& frame) {
  Headers found = {};
  std::memcpy(&found.vnet, frame.data(), sizeof found.vnet);
  std::memcpy(&found.ip, frame.data() + kIp, sizeof found.ip);
  std::memcpy(&found.tcp, frame.data() + kTcp, sizeof found.tcp);
  return found;
}

// What TCP hands to a device that cuts: `bytes` of data, number upon number.
Frame whole_frame(std::size_t bytes) {
  Frame frame(kData + bytes);
  Headers headers = {};
  headers.vnet = {1, VnetHeader::kTcp4, kData - kVnetHeader, uint16_t{kSegment}, kTcp - kVnetHeader,
                  16};
  headers.ip.version = 4;
  headers.ip.ihl = 5;
  headers.ip.protocol = IPPROTO_TCP;
  headers.ip.id = htons(65535);
  headers.ip.tot_len = htons(static_cast<uint16_t>(frame.size() - kIp));
  headers.ip.saddr = htonl(0x0a4e0001);
  headers.ip.daddr = htonl(0x0a4e0002);
  headers.tcp.seq = htonl(0xfffff000);
  headers.tcp.doff = (sizeof(tcphdr) + kOptions) / 4;
  headers.tcp.fin = headers.tcp.psh = headers.tcp.ack = 1;
  std::memcpy(frame.data(), &headers.vnet, sizeof headers.vnet);
  std::memcpy(frame.data() + kIp, &headers.ip, sizeof headers.ip);
  std::memcpy(frame.data() + kTcp, &headers.tcp, sizeof headers.tcp);
  for (std::size_t at = 0; at < bytes; ++at) frame[kData + at] = static_cast<std::byte>(at * 7);
  return frame;
}

Frame cut(const Frame& frame, uint32_t first, uint32_t count) {
  Frame piece(kLargestFrame);
  piece.resize(cut_out(frame, first, count, piece));
  return piece;
}

uint32_t sum_of(const void* bytes, std::size_t size) {
  uint32_t sum = 0;
  for (std::size_t at = 0; at < size; at += 2) {
    uint16_t word;
    std::memcpy(&word, static_cast<const char*>(bytes) + at, 2);
    sum += word;
  }
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

TEST(Segments, AreCountedAsADeviceWouldCutThem) {
  EXPECT_EQ(segments_in(whole_frame(10 * kSegment)), 10u);
  EXPECT_EQ(segments_in(whole_frame(10 * kSegment + 1)), 11u);
  Frame single = whole_frame(kSegment);
  single[1] = std::byte{0};  // gso_type: nothing to be cut
  EXPECT_EQ(segments_in(single), 1u);
}

TEST(Segments, CutApartHoldTheWholeInOrderUnderTheirOwnHeaders) {
  const Frame whole = whole_frame(5 * kSegment + 100);
  Frame data;
  uint32_t next = 0xfffff000;
  uint16_t id = 65535;
  for (const auto& [first, count] : {std::pair{0u, 2u}, {2u, 1u}, {3u, 2u}, {5u, 1u}}) {
    const Frame piece = cut(whole, first, count);
    const Headers headers = headers_of(piece);
    EXPECT_EQ(segments_in(piece), count);
    EXPECT_EQ(headers.vnet.gso_type, count == 1 ? 0 : VnetHeader::kTcp4);
    EXPECT_EQ(ntohs(headers.ip.tot_len), piece.size() - kIp);
    EXPECT_EQ(ntohs(headers.ip.id), id);
    EXPECT_EQ(sum_of(&headers.ip, sizeof headers.ip), 0xffffu);  // RFC 1071: it sums up to ones
    EXPECT_EQ(ntohl(headers.tcp.seq), next);
    EXPECT_EQ(headers.tcp.fin && headers.tcp.psh, first == 5);  // with the last alone
    const uint16_t length = htons(static_cast<uint16_t>(piece.size() - kTcp));
    const uint32_t pseudo[] = {headers.ip.saddr, headers.ip.daddr,
                               uint32_t{htons(IPPROTO_TCP)} + length};
    EXPECT_EQ(headers.tcp.check, sum_of(pseudo, sizeof pseudo));
    data.insert(data.end(), piece.begin() + kData, piece.end());
    next += static_cast<uint32_t>(piece.size() - kData);
    id = static_cast<uint16_t>(id + count);
  }
  EXPECT_EQ(data, Frame(whole.begin() + kData, whole.end()));
}

TEST(Segments, OfAFrameOfAnyBytesAreOneOrFitIt) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    Frame frame = whole_frame(random() % 4000 + 1);
    frame.resize(random() % (frame.size() + 1));
    for (int change = 0; change < 3 && !frame.empty(); ++change) {
      frame[random() % std::min<std::size_t>(frame.size(), kData)] = std::byte(random());
    }
    const uint32_t segments = segments_in(frame);
    ASSERT_GE(segments, 1u);
    if (segments > 1) {
      ASSERT_LE(cut(frame, segments - 1, 1).size(), frame.size());
    }
  }
}

}  // namespace
}  // namespace tare::probe
