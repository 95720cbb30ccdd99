// The stripe of a file: the bytes that its file system keeps in one piece at one server and locks
// as one. Nodes that write parts of the same stripe take its lock from each other, so all of a
// stripe belongs to one node (nodes/placement.h).
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "../settings/settings.h"

namespace nvio {

// Bytes, from the value of a Lustre file's extended attribute `lustre.lov`. Nothing for a composite
// layout, whose stripes differ along the file, for one without stripes (data on the metadata
// server), and for what is no layout.
std::optional<std::uint64_t> parse_lov(std::span<const std::byte> attribute);

// Bytes, 0 when nobody tells: the setting; else Lustre's layout, which is a fact, while a hint is a
// wish that counts when a file is made; else the hint; else the block size that the file system
// prefers.
std::uint64_t stripe_of(int fd, const struct stat& status, const FileSettings& settings);

}  // namespace nvio
