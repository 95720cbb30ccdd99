#pragma once

#include <algorithm>
#include <cstdint>

#include "../store/segment.h"

namespace nvio {

// The part of a transfer that lies in one block. Offsets within the block.
struct Piece {
  Piece(std::uint64_t offset, std::uint64_t end)
      : place(offset % kGroupSize / kBlockSize),
        begin(offset % kBlockSize),
        stop(std::min(kBlockSize, begin + (end - offset))),
        next(offset + (stop - begin)) {}
  std::uint64_t place, begin, stop;
  std::uint64_t next;  // offset in the file where the next piece starts
};

}  // namespace nvio
