// A system call that does next to nothing.
#include <sys/syscall.h>
#include <unistd.h>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {

void AddSystemCall(Command costs) {
  static Extent extent{.batches = 20, .operations = 10'000};
  const Command command = costs.Add("syscall", "A null system call (getppid).");
  AddExtent(command, extent);
  command.Do([] {
    PrintCost("syscall", "system call", extent,
              MeasureBatches(extent, [] { syscall(SYS_getppid); }));
  });
}

}  // namespace tare::probe
