// The two halves of libnvio.so share this: who serves POSIX calls, and what lies behind us.
#pragma once

#include "contract.h"

namespace nvio {

// Zero-initialised in loader.cc; the checker cannot see that from a declaration.
// NOLINTBEGIN(bugprone-dynamic-static-initializers)
// Null until a library for this process's MPI is attached.
extern const PosixHooks* g_hooks;
extern std::uint8_t g_tracked[kMaxDescriptors];
extern std::uint64_t g_mapped;
// NOLINTEND(bugprone-dynamic-static-initializers)

const RealPosix& real_posix();

inline bool is_tracked(int fd) {
  return g_hooks != nullptr && fd >= 0 && fd < kMaxDescriptors && g_tracked[fd] == kServed;
}

}  // namespace nvio
