#include "segments.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>

namespace tare::probe {
namespace {

constexpr std::size_t kIp = kVnetHeader + 14;

template <typename T>
T read(std::span<const std::byte> frame, std::size_t at) {
  T value;
  std::memcpy(&value, frame.data() + at, sizeof value);
  return value;
}

template <typename T>
void write(std::span<std::byte> frame, std::size_t at, const T& value) {
  std::memcpy(frame.data() + at, &value, sizeof value);
}

// Where TCP's header and the data begin, and how much of it a segment has.
struct Layout {
  std::size_t tcp = 0;
  std::size_t data = 0;
  std::size_t segment = 0;  // 0: nothing to be cut
};

Layout layout_of(std::span<const std::byte> frame) {
  if (frame.size() < kIp + sizeof(iphdr)) return {};
  const auto vnet = read<VnetHeader>(frame, 0);
  const auto ip = read<iphdr>(frame, kIp);
  const std::size_t tcp = kIp + ip.ihl * std::size_t{4};
  if (vnet.gso_type != VnetHeader::kTcp4 || vnet.gso_size == 0 || ip.ihl < 5 ||
      frame.size() < tcp + sizeof(tcphdr)) {
    return {};
  }
  const std::size_t data = tcp + read<tcphdr>(frame, tcp).doff * std::size_t{4};
  if (data < tcp + sizeof(tcphdr) || data >= frame.size()) return {};
  return {tcp, data, vnet.gso_size};
}

// The ones' complement sum of 16-bit words as they lie in memory (RFC 1071), without its
// complement.
uint16_t sum(std::span<const std::byte> words) {
  uint32_t sum = 0;
  for (std::size_t at = 0; at + 2 <= words.size(); at += 2) sum += read<uint16_t>(words, at);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// What stands in TCP's checksum until the device has summed up the rest (RFC 9293, section 3.1).
uint16_t pseudo_header_sum(const iphdr& ip, std::size_t tcp_bytes) {
  struct {
    uint32_t from, to;
    uint16_t protocol, length;
  } pseudo = {ip.saddr, ip.daddr, htons(IPPROTO_TCP), htons(static_cast<uint16_t>(tcp_bytes))};
  return sum(std::as_bytes(std::span(&pseudo, 1)));
}

}  // namespace

uint32_t segments_in(std::span<const std::byte> frame) {
  const Layout layout = layout_of(frame);
  if (layout.segment == 0) return 1;
  return static_cast<uint32_t>((frame.size() - layout.data + layout.segment - 1) / layout.segment);
}

std::size_t cut_out(std::span<const std::byte> frame, uint32_t first, uint32_t count,
                    std::span<std::byte> piece) {
  const Layout layout = layout_of(frame);
  const std::size_t from = layout.data + first * layout.segment;
  const std::size_t bytes = std::min(count * layout.segment, frame.size() - from);
  const std::size_t size = layout.data + bytes;
  std::memcpy(piece.data(), frame.data(), layout.data);
  std::memcpy(piece.data() + layout.data, frame.data() + from, bytes);

  auto vnet = read<VnetHeader>(frame, 0);
  if (count == 1) {
    vnet.gso_type = 0;
    vnet.gso_size = 0;
  }
  write(piece, 0, vnet);

  auto ip = read<iphdr>(frame, kIp);
  ip.tot_len = htons(static_cast<uint16_t>(size - kIp));
  ip.id = htons(static_cast<uint16_t>(ntohs(ip.id) + first));
  ip.check = 0;
  write(piece, kIp, ip);
  ip.check = static_cast<uint16_t>(~sum(piece.subspan(kIp, layout.tcp - kIp)));
  write(piece, kIp, ip);

  auto tcp = read<tcphdr>(frame, layout.tcp);
  tcp.seq = htonl(ntohl(tcp.seq) + static_cast<uint32_t>(from - layout.data));
  if (from + bytes < frame.size()) tcp.fin = tcp.psh = 0;  // the last segment's alone
  tcp.check = pseudo_header_sum(ip, size - layout.tcp);
  write(piece, layout.tcp, tcp);
  return size;
}

}  // namespace tare::probe
