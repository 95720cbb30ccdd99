// An Ethernet frame of any content: answered in place, or left as it is.
#include "frame.h"

#include <cstdlib>
#include <vector>

using namespace tare::probe;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  std::vector<std::byte> frame(bytes.begin(), bytes.end());
  const std::vector<std::byte> before = frame;
  constexpr MacAddress kOwn = {std::byte{2}};
  if (AnswerFrame(frame, kOwn) == Answer::kNone && frame != before) std::abort();
  return 0;
}
