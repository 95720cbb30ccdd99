// CRC32C (Castagnoli), by the processor's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nvio {

// Continues `crc` (0 to start) over `length` bytes. crc32c("123456789") == 0xE3069283.
std::uint32_t crc32c(const void* data, std::size_t length, std::uint32_t crc = 0);
// The same by table, on any machine; the other must equal it.
std::uint32_t crc32c_by_table(const void* data, std::size_t length, std::uint32_t crc = 0);

}  // namespace nvio
