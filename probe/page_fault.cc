// The first touch of a page of anonymous memory.
#include <sys/mman.h>
#include <unistd.h>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

void run(const Extent& extent) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = page * extent.operations;
  char* memory = nullptr;
  std::size_t touched = 0;
  const auto map = [&] {
    void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) throw_errno("cannot map " + std::to_string(bytes) + " bytes");
    // A huge page would bring 512 at one fault.
    madvise(place, bytes, MADV_NOHUGEPAGE);
    memory = static_cast<char*>(place);
    touched = 0;
  };
  const auto touch = [&] {
    *static_cast<volatile char*>(memory + touched) = 1;
    touched += page;
  };
  print_cost("page-fault", "first touch of a page", extent,
             measure_batches(extent, map, touch, [&] { munmap(memory, bytes); }),
             {{"page_bytes", page}});
}

}  // namespace

void add_page_fault(Command costs) {
  static Extent extent{.batches = 20, .operations = 2'000};
  const Command command = costs.add("page-fault", "The first touch of an anonymous page.");
  add_extent(command, extent);
  command.calls([] { run(extent); });
}

}  // namespace tare::probe
