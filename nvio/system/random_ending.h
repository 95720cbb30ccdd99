// What makes a name one of its own, also beside those of processes on other machines, or in other
// containers, which may have the same number.
#pragma once

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace nvio {

// A dot and eight hexadecimal digits.
inline std::string random_ending() {
  std::uint32_t word = 0;
  if (getrandom(&word, sizeof word, 0) != sizeof word) word = 0;
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), ".%08x", word);
  return text.data();
}

}  // namespace nvio
