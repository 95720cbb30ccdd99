// Copying a block of memory.
#include <cstring>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

struct Options {
  Extent extent{.batches = 20, .operations = 20};
  std::size_t bytes = 16 << 20;
};

void run(const Options& options) {
  std::vector<char> from(options.bytes, 1);
  std::vector<char> to(options.bytes, 2);
  print_cost("memory-copy", "copy of bytes_per_operation", options.extent,
             measure_batches(options.extent,
                             [&] {
                               std::memcpy(to.data(), from.data(), options.bytes);
                               char* copied = to.data();
                               keep(copied);
                             }),
             {{"bytes_per_operation", options.bytes}});
}

}  // namespace

void add_memory_copy(Command costs) {
  static Options options;
  const Command command = costs.add("memory-copy", "Copying a block of memory (memcpy).");
  add_extent(command, options.extent);
  command.add("--bytes", options.bytes, "size of the block", "N (default 16777216)")
      .within(1UL, 1UL << 32);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
