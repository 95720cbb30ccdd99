#include "frame.h"

#include <algorithm>

namespace tare::probe {
namespace {

using Bytes = std::span<std::byte>;

// Ethernet II
constexpr std::size_t kEthernetBytes = 14;
constexpr uint16_t kTypeArp = 0x0806;
constexpr uint16_t kTypeIpv4 = 0x0800;
// RFC 826 for Ethernet and IPv4
constexpr std::size_t kArpBytes = 28;
constexpr uint16_t kArpRequest = 1;
constexpr uint16_t kArpReply = 2;
// RFC 791
constexpr std::size_t kIpv4MinBytes = 20;
constexpr uint8_t kProtocolIcmp = 1;
constexpr uint8_t kProtocolUdp = 17;
// RFC 792, RFC 768
constexpr std::size_t kTransportBytes = 8;
constexpr uint8_t kEchoRequest = 8;
constexpr uint8_t kEchoReply = 0;

uint8_t get8(Bytes bytes, std::size_t at) { return std::to_integer<uint8_t>(bytes[at]); }

uint16_t get16(Bytes bytes, std::size_t at) {
  return static_cast<uint16_t>(get8(bytes, at) << 8 | get8(bytes, at + 1));
}

void put16(Bytes bytes, std::size_t at, uint16_t value) {
  bytes[at] = static_cast<std::byte>(value >> 8);
  bytes[at + 1] = static_cast<std::byte>(value & 0xff);
}

void swap(Bytes bytes, std::size_t one, std::size_t other, std::size_t length) {
  const auto first = bytes.subspan(one, length);
  std::swap_ranges(first.begin(), first.end(), bytes.subspan(other, length).begin());
}

void address_back(Bytes frame, const MacAddress& own_mac) {
  std::copy_n(frame.begin() + 6, 6, frame.begin());
  std::copy(own_mac.begin(), own_mac.end(), frame.begin() + 6);
}

bool same_bytes(Bytes bytes, std::size_t one, std::size_t other, std::size_t length) {
  return std::ranges::equal(bytes.subspan(one, length), bytes.subspan(other, length));
}

Answer answer_arp(Bytes frame, const MacAddress& own_mac) {
  if (frame.size() < kEthernetBytes + kArpBytes) return Answer::kNone;
  const Bytes arp = frame.subspan(kEthernetBytes, kArpBytes);
  const bool ethernet_and_ipv4 =
      get16(arp, 0) == 1 && get16(arp, 2) == kTypeIpv4 && get8(arp, 4) == 6 && get8(arp, 5) == 4;
  if (!ethernet_and_ipv4 || get16(arp, 6) != kArpRequest) return Answer::kNone;
  // Who asks for its own address only wants to know whether anyone else has it.
  const uint32_t sender = uint32_t{get16(arp, 14)} << 16 | get16(arp, 16);
  if (sender == 0 || same_bytes(arp, 14, 24, 4)) return Answer::kNone;
  address_back(frame, own_mac);
  put16(arp, 6, kArpReply);
  swap(arp, 14, 24, 4);                                        // protocol addresses
  std::copy_n(arp.begin() + 8, 6, arp.begin() + 18);           // hardware address of the asker
  std::copy(own_mac.begin(), own_mac.end(), arp.begin() + 8);  // and ours
  return Answer::kArp;
}

// Swapping addresses and ports leaves the ones' complement sums of IP and UDP as they are.
Answer answer_ipv4(Bytes frame, const MacAddress& own_mac) {
  if (frame.size() < kEthernetBytes + kIpv4MinBytes) return Answer::kNone;
  Bytes packet = frame.subspan(kEthernetBytes);
  const std::size_t header = static_cast<std::size_t>(get8(packet, 0) & 0xf) * 4;
  const std::size_t total = get16(packet, 2);
  const bool whole = get8(packet, 0) >> 4 == 4 && header >= kIpv4MinBytes &&
                     total >= header + kTransportBytes && total <= packet.size();
  const bool fragment = (get16(packet, 6) & 0x3fff) != 0;
  const bool single_address = get8(packet, 16) < 224;  // neither multicast nor broadcast
  if (!whole || fragment || !single_address) return Answer::kNone;
  const Bytes transport = packet.subspan(header, total - header);
  switch (get8(packet, 9)) {
    case kProtocolIcmp: {
      if (get8(transport, 0) != kEchoRequest) return Answer::kNone;
      transport[0] = static_cast<std::byte>(kEchoReply);
      // RFC 1624: the sum loses what the type lost.
      uint32_t sum = uint32_t{get16(transport, 2)} + (kEchoRequest << 8);
      sum = (sum & 0xffff) + (sum >> 16);
      put16(transport, 2, static_cast<uint16_t>(sum));
      break;
    }
    case kProtocolUdp:
      swap(transport, 0, 2, 2);
      break;
    default:
      return Answer::kNone;
  }
  const bool udp = get8(packet, 9) == kProtocolUdp;
  swap(packet, 12, 16, 4);
  address_back(frame, own_mac);
  return udp ? Answer::kUdpEcho : Answer::kIcmpEcho;
}

}  // namespace

Answer answer_frame(std::span<std::byte> frame, const MacAddress& own_mac) {
  if (frame.size() < kEthernetBytes) return Answer::kNone;
  switch (get16(frame, 12)) {
    case kTypeArp:
      return answer_arp(frame, own_mac);
    case kTypeIpv4:
      return answer_ipv4(frame, own_mac);
    default:
      return Answer::kNone;
  }
}

}  // namespace tare::probe
