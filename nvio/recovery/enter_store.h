// How a process comes into its job's store.
#pragma once

#include <cstdint>
#include <string>

#include "../store/life_lock.h"

namespace nvio {

// Makes the store's folder where it is not there, and shares its lock. What a killed run left in it
// is settled first (left_over.h), with `remark` about that. An open one is returned, or a closed
// one with a sentence in `why`.
LifeLock enter_store(const std::string& folder, std::uint32_t nodes, std::string& remark,
                     std::string& why);

}  // namespace nvio
