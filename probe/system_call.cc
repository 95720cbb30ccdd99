// A system call that does next to nothing.
#include <sys/syscall.h>
#include <unistd.h>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {

void add_system_call(Command costs) {
  static Extent extent{.batches = 20, .operations = 10'000};
  const Command command = costs.add("syscall", "A null system call (getppid).");
  add_extent(command, extent);
  command.calls([] {
    print_cost("syscall", "system call", extent,
               measure_batches(extent, [] { syscall(SYS_getppid); }));
  });
}

}  // namespace tare::probe
