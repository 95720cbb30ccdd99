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

void Run(const Options& options) {
  std::vector<char> from(options.bytes, 1);
  std::vector<char> to(options.bytes, 2);
  PrintCost("memory-copy", "copy of bytes_per_operation", options.extent,
            MeasureBatches(options.extent,
                           [&] {
                             std::memcpy(to.data(), from.data(), options.bytes);
                             char* copied = to.data();
                             Keep(copied);
                           }),
            {{"bytes_per_operation", options.bytes}});
}

}  // namespace

void AddMemoryCopy(Command costs) {
  static Options options;
  const Command command = costs.Add("memory-copy", "Copying a block of memory (memcpy).");
  AddExtent(command, options.extent);
  command.Add("--bytes", options.bytes, "size of the block", "N (default 16777216)")
      .Within(1UL, 1UL << 32);
  command.Do([] { Run(options); });
}

}  // namespace tare::probe
