// A table of so many entries, never freed: the process's one. Pages that nobody touches cost
// nothing.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace nvio {

template <typename Entry>
Entry* zeroed(std::size_t entries) {
  return static_cast<Entry*>(std::calloc(entries, sizeof(Entry)));
}

}  // namespace nvio
