#include "crc32c.h"

#include <array>
#include <cstring>

#ifdef __x86_64__
#include <cpuid.h>
#include <nmmintrin.h>
#endif

namespace nvio {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value & 1) != 0 ? (value >> 1) ^ 0x82F63B78U : value >> 1;
    }
    table[i] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

#ifdef __x86_64__
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const unsigned char* bytes,
                                                               std::size_t length,
                                                               std::uint32_t crc) {
  std::uint64_t value = ~crc;
  for (; length >= 8; bytes += 8, length -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    value = _mm_crc32_u64(value, word);
  }
  auto small = static_cast<std::uint32_t>(value);
  for (; length > 0; ++bytes, --length) small = _mm_crc32_u8(small, *bytes);
  return ~small;
}

// Not __builtin_cpu_supports: it asks the processor some ten times as the library is opened, in
// every process, and where a hypervisor answers that is a tenth of the first open of a file.
bool has_crc32() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_2) != 0;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(const void* data, std::size_t length, std::uint32_t crc) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (std::size_t i = 0; i < length; ++i) crc = (crc >> 8) ^ kTable[(crc ^ bytes[i]) & 0xFF];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t length, std::uint32_t crc) {
#ifdef __x86_64__
  static const bool has_instruction = has_crc32();
  if (has_instruction) return by_instruction(static_cast<const unsigned char*>(data), length, crc);
#endif
  return crc32c_by_table(data, length, crc);
}

}  // namespace nvio
