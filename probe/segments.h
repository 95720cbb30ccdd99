// Frames of TCP as a sender hands them to a device that cuts them into segments (TSO): read from a
// tap behind their virtio_net_hdr, up to 64 KiB for one pair of headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tare::probe {

/// What stands before each frame: virtio_net_hdr of linux/virtio_net.h, which is no C++.
struct VnetHeader {
  static constexpr uint8_t kTcp4 = 1;  // of gso_type

  uint8_t flags;
  uint8_t gso_type;  // 0: nothing to be cut
  uint16_t header_length;
  uint16_t gso_size;  // data in a segment
  uint16_t checksum_start, checksum_offset;
};
constexpr std::size_t kVnetHeader = sizeof(VnetHeader);

/// The most that is read at once: 64 KiB by IPv4's length, Ethernet, and what stands before it.
constexpr std::size_t kLargestFrame = kVnetHeader + 14 + 65535;

/// How many frames this one is on a wire; 1 for whatever is no TCP over IPv4 to be cut.
uint32_t segments_in(std::span<const std::byte> frame);

/// Writes a frame of `count` of its segments, from the number `first` on, as if TCP had sent these
/// alone, and returns its size. `frame` has so many; `piece` has room for kLargestFrame.
std::size_t cut_out(std::span<const std::byte> frame, uint32_t first, uint32_t count,
                    std::span<std::byte> piece);

}  // namespace tare::probe
