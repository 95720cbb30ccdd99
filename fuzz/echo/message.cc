// A datagram of any content: refused, or read so that writing it gives the same bytes.
#include "message.h"

#include <algorithm>
#include <array>
#include <cstdlib>

using namespace tare::echo;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto message = DecodeMessage(bytes);
  if (!message) return 0;
  std::array<std::byte, kHeaderBytes> header;
  EncodeHeader(*message, static_cast<uint32_t>(message->payload.size()), header);
  if (!std::equal(header.begin(), header.end(), bytes.begin())) std::abort();
  Checksum(message->requester, message->sequence, message->payload);
  return 0;
}
