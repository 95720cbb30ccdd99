// Which file system a device number means: what it was mounted from.
#pragma once

#include <sys/types.h>

#include <string>

namespace nvio {

// "TYPE SOURCE" of the mount of this device (fuse.glusterfs host:/volume), by the kernel's table;
// empty when it has none.
std::string mount_source(dev_t device);

}  // namespace nvio
