// How large a store may be.
#pragma once

#include <cstdint>
#include <string>

#include "../settings/settings.h"

namespace nvio {

bool is_tmpfs(const std::string& path);

// The bytes that a new store is given: what is set, or a quarter of the room where it lies; on a
// tmpfs, of the memory that the job's control groups leave it, if that is less. No more than this
// process may write to a file; and unless set, than takes an eighth of the addresses that it may
// have. Zero and a sentence when there is no such room.
std::uint64_t choose_capacity(const Settings& settings, bool tmpfs, std::string& why);

}  // namespace nvio
