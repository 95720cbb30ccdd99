// Any bytes as a matrix file's header: a header within its bounds, which encodes to the same bytes,
// or a sentence.
#include "header.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const walks::Header header = walks::decode(bytes);
    if (header.n == 0 || header.n > walks::kMostVertices) std::abort();
    if (!walks::is_cell_width(header.cell)) std::abort();
    const auto again = walks::encode(header);
    if (!std::equal(again.begin(), again.end(), bytes.begin())) std::abort();
  } catch (const std::runtime_error&) {
  }
  // The checksum keeps chance away from the fields; whatever they are, encoding must decode.
  if (size >= 40) {
    walks::Header header;
    header.n = 1 + data[0] + 256U * data[1];
    header.cell = 1U << (data[2] % 4);
    header.tile = data[3];
    header.power = data[4];
    header.first_vertex = data[5] % 2;
    header.saturated = data[6] % 2 != 0;
    if (walks::decode(walks::encode(header)).n != header.n) std::abort();
  }
  return 0;
}
