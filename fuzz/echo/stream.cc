// A stream of any content, cut into pieces by its own bytes: whatever is found in it is whole,
// and found the same however it was cut.
#include <cstdlib>
#include <vector>

#include "assembler.h"

using namespace tare::echo;

namespace {

constexpr uint32_t kMaxPayload = 1000;

std::vector<std::byte> Found(std::span<const std::byte> stream, std::size_t piece) {
  std::vector<std::byte> found;
  Assembler assembler(kHeaderBytes);
  while (!stream.empty()) {
    const auto room = assembler.Room();
    if (room.empty()) std::abort();
    const std::size_t length = std::min({room.size(), stream.size(), piece});
    std::copy_n(stream.begin(), length, room.begin());
    stream = stream.subspan(length);
    const bool readable = assembler.Add(length, kMaxPayload, [&](std::span<const std::byte> whole) {
      if (!DecodeMessage(whole)) std::abort();
      found.insert(found.end(), whole.begin(), whole.end());
    });
    if (!readable) break;
  }
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto stream = std::as_bytes(std::span(data + 1, size - 1));
  if (Found(stream, std::size_t{1} + data[0]) != Found(stream, stream.size())) std::abort();
  return 0;
}
