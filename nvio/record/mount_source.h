// Which file system a descriptor's file is on: what that was mounted from.
#pragma once

#include <string>

namespace nvio {

// "TYPE SOURCE" of its mount (fuse.glusterfs host:/volume), by the kernel's table; empty when that
// does not have it.
std::string mount_source(int fd);

}  // namespace nvio
