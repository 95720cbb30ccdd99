#include "axis.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace nvio {
namespace {

constexpr double kMostTimes = 8;  // ticks
constexpr double kMostOffsets = 5;
constexpr double kKibi = 1024;
constexpr std::array<const char*, 7> kByteUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

std::string written(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

Ticks ticks(double low, double high, double step, double of_unit, const char* unit) {
  Ticks found;
  found.unit = unit;
  // Counted from the first: numbers as large as offsets may be have no next one an integer away.
  const double first = std::ceil(low / step);
  for (double i = 0; (first + i) * step <= high; ++i) {
    const double value = (first + i) * step;
    found.at.emplace_back(value, written(value / of_unit));
  }
  return found;
}

}  // namespace

Ticks time_ticks(double low, double high) {
  struct Unit {
    const char* name;
    double seconds;
  };
  constexpr std::array<Unit, 3> kUnits{{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}}};
  Unit unit = kUnits[0];
  for (const Unit& smaller : kUnits) {
    if (high < 2 * unit.seconds) unit = smaller;
  }
  const double rough = std::max((high - low) / kMostTimes, unit.seconds * 1e-3);
  double step = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0, 10.0}) {
    if (step * times >= rough) {
      step *= times;
      break;
    }
  }
  return ticks(low, high, step, unit.seconds, unit.name);
}

Ticks byte_ticks(double low, double high) {
  double step = 1;
  while ((high - low) / step > kMostOffsets) step *= 2;
  std::size_t unit = 0;
  double bytes = 1;
  while (unit + 1 < kByteUnits.size() && high >= 2 * bytes * kKibi) {
    bytes *= kKibi;
    ++unit;
  }
  return ticks(low, high, step, bytes, kByteUnits[unit]);
}

std::string in_seconds(double seconds) {
  const Ticks one = time_ticks(0, 2 * seconds);
  const double unit = one.unit == "s" ? 1 : one.unit == "ms" ? 1e-3 : 1e-6;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g %s", seconds / unit, one.unit.c_str());
  return text.data();
}

std::string in_bytes(double bytes) {
  std::size_t unit = 0;
  while (unit + 1 < kByteUnits.size() && bytes >= 999.5) {
    bytes /= kKibi;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g %s", bytes, kByteUnits[unit]);
  return text.data();
}

}  // namespace nvio
