// Where an axis has its ticks, and what stands at them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace nvio {

struct Ticks {
  std::vector<std::pair<double, std::string>> at;  // value, what is written at it
  std::string unit;
};

// Seconds, at steps of 1, 2 or 5 of a power of ten of the unit.
Ticks time_ticks(double low, double high);
// Bytes, at powers of two.
Ticks byte_ticks(double low, double high);
// As "12 KiB" and "3.4 ms", with at most three digits.
std::string in_bytes(double bytes);
std::string in_seconds(double seconds);

}  // namespace nvio
