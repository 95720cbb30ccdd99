#include "cold_functions.h"

#include <utility>

#include "measurement.h"

namespace tare::probe {
namespace {

// A function of its own for each number, in a place of its own, with branches that depend on data.
template <std::size_t Number>
[[gnu::noinline, gnu::aligned(256)]] uint64_t function(uint64_t value, ColdData& data) {
  uint64_t& word = data[(value + Number * 7) % data.size()].word;
  if (word & 1U) {
    value = value * 6364136223846793005ULL + Number;
  } else {
    value ^= word >> (Number % 13);
  }
  if (value & 2U) word += value | 1U;
  keep(value);
  return value;
}

using Signature = uint64_t (*)(uint64_t, ColdData&);

template <std::size_t... Numbers>
constexpr std::array<Signature, sizeof...(Numbers)> make_table(std::index_sequence<Numbers...>) {
  return {function<Numbers>...};
}

// Not constant to the compiler: calls go through it as through a table of virtual functions.
std::array<Signature, kColdFunctions> table =
    make_table(std::make_index_sequence<kColdFunctions>());

}  // namespace

uint64_t call_cold_functions(uint64_t value, ColdData& data) {
  for (const Signature function : table) value = function(value, data);
  return value;
}

}  // namespace tare::probe
