// Answers Ethernet frames as a host would that only knows ARP, ICMP echo and UDP echo.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tare::probe {

using MacAddress = std::array<std::byte, 6>;

enum class Answer { kNone, kArp, kIcmpEcho, kUdpEcho };

/// Turns the frame into its answer, in place and of the same length, or leaves it and says
/// kNone. Answers ARP requests for any address but the asker's own, and IPv4 echo requests and
/// UDP datagrams to any single address, so that the far side needs no configuration. Fragments
/// are left alone. Reads and writes nothing beyond the frame, whatever it holds.
Answer answer_frame(std::span<std::byte> frame, const MacAddress& own_mac);

}  // namespace tare::probe
