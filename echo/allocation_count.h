// For tests: counts what this process allocates.
#pragma once

#include <cstdint>

namespace tare::echo {

/// How often malloc and its kin, operator new among them, were called so far. Under a sanitizer,
/// which has an allocator of its own, operator new alone is counted.
uint64_t allocation_count();

}  // namespace tare::echo
