#include "line.h"

#include <iostream>
#include <nlohmann/json.hpp>

namespace tare::probe {

void print_line(const Members& members) {
  nlohmann::json line = nlohmann::json::object();
  for (const auto& member : members) {
    std::visit([&](const auto& value) { line[member.first] = value; }, member.second);
  }
  std::cout << line.dump() << std::endl;
}

}  // namespace tare::probe
