// Code as a middleware's path is: hundreds of functions, each called once, through a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tare::probe {

constexpr std::size_t kColdFunctions = 512;

/// What the functions touch: a line of 64 bytes here and there.
struct alignas(64) ColdLine {
  uint64_t word = 0;
};
using ColdData = std::array<ColdLine, 1024>;

/// Calls each of the kColdFunctions once; what they do depends on `value` and on the data, which
/// they change. Returns the next value.
uint64_t call_cold_functions(uint64_t value, ColdData& data);

}  // namespace tare::probe
