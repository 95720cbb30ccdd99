// What a killed run left in its store, when another of the same session comes.
#pragma once

#include <cstdint>
#include <string>

namespace nvio {

// To be called with the lock of the store's folder held alone: nobody lives then who wrote into it,
// and what it says of files may be served to nobody. What the files lack is written to them, as
// `nvio recover --latest` does it, and the store goes; `remark` is a sentence about that. False,
// with a sentence in `why`, when it cannot be: then nobody may join. A store from before the
// machine restarted stays for the one who joins to refuse.
bool settle_left_over(const std::string& path, std::uint32_t nodes, std::string& remark,
                      std::string& why);

// For a job on several nodes that is to have its store at `path`: whether no other job of its
// session left one on this node that still holds what its files lack, and would be recovered over
// what this one writes. A sentence in `why` if one did.
bool is_nothing_left_beside(const std::string& path, std::string& why);

}  // namespace nvio
