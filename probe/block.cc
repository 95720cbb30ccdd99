// Reading a block device past the page cache. On a null device in a guest nothing but the way
// there and back is left: the virtio kick and the interrupt.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

struct Options {
  Extent extent{.batches = 20, .operations = 200};
  std::string device;
  std::size_t bytes = 4096;
};

uint64_t size_of(int fd) {
  struct stat status = {};
  if (fstat(fd, &status) != 0) throw_errno("cannot examine the device");
  if (!S_ISBLK(status.st_mode)) return static_cast<uint64_t>(status.st_size);
  uint64_t size = 0;
  if (ioctl(fd, BLKGETSIZE64, &size) != 0) throw_errno("cannot learn the device's size");
  return size;
}

void run(const Options& options) {
  const int fd = open(options.device.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) throw_errno("cannot open " + options.device + " for reading past the page cache");
  const uint64_t size = size_of(fd) / options.bytes * options.bytes;
  if (size == 0) {
    throw std::runtime_error(options.device + " is smaller than one read of " +
                             std::to_string(options.bytes) + " bytes");
  }
  const std::unique_ptr<void, decltype(&std::free)> buffer(
      std::aligned_alloc(4096, (options.bytes + 4095) / 4096 * 4096), &std::free);
  uint64_t offset = 0;
  print_cost("block", "read of bytes_per_operation, O_DIRECT", options.extent,
             measure_batches(options.extent,
                             [&] {
                               if (pread(fd, buffer.get(), options.bytes,
                                         static_cast<off_t>(offset)) < 0) {
                                 throw_errno("cannot read " + options.device);
                               }
                               offset = (offset + options.bytes) % size;
                             }),
             {{"device", options.device}, {"bytes_per_operation", options.bytes}});
  close(fd);
}

}  // namespace

void add_block(Command costs) {
  static Options options;
  const Command command = costs.add("block", "Reads of a block device with O_DIRECT.");
  add_extent(command, options.extent);
  command
      .add("--device", options.device, "block device, or file on one that knows O_DIRECT", "PATH")
      .required();
  command.add("--bytes", options.bytes, "bytes of one read, a multiple of 512", "N (default 4096)")
      .within(512, 1 << 24);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
