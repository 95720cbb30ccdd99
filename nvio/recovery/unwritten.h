// What a store's working memory holds that its files lack. For recovery and inspection: of a
// segment that nobody vouches for.
#pragma once

#include <cstdint>

#include "../store/segment.h"

namespace nvio {

struct Unwritten {
  std::uint64_t bytes = 0;     // that are not in the file
  std::uint64_t unsynced = 0;  // of them, those that no completed sync took to the redo log
};

Unwritten unwritten_of(Segment& segment, std::uint32_t file);

}  // namespace nvio
