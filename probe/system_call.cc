// A system call that does next to nothing.
#include <sys/syscall.h>
#include <unistd.h>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {

void AddSystemCall(CLI::App& app) {
  static Extent extent{.batches = 20, .operations = 10'000};
  CLI::App* command = app.add_subcommand("syscall", "A null system call (getppid).");
  AddExtent(*command, extent);
  command->callback([] {
    PrintCost("syscall", "system call", extent,
              MeasureBatches(extent, [] { syscall(SYS_getppid); }));
  });
}

}  // namespace tare::probe
