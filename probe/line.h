// The one JSON line that a probe or a service prints. Only line.cc includes json.hpp, which takes
// the compiler some seconds: every cost would pay them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tare::probe {

using Value = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<double>>;
using Members = std::vector<std::pair<std::string, Value>>;

/// Prints one JSON object as one line, at once.
void print_line(const Members& members);

}  // namespace tare::probe
