// What one node knows of a file that several nodes cache.
#pragma once

#include <cstdint>

#include "../cache/cached_file.h"
#include "placement.h"
#include "wire.h"

namespace nvio {

// What the cache of a file is doing at this node.
FileState state_of(CachedFile& file);
// How the file belongs to the nodes, decided by whoever asks first at the file's home node.
Shares shares_of(CachedFile& file, Spread spread, std::uint32_t nodes);

}  // namespace nvio
