// The name that somebody meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nvio {

// The known name that is fewest edits away from `name`; empty when none is near.
std::string nearest(std::string_view name, const std::vector<std::string>& known);

}  // namespace nvio
