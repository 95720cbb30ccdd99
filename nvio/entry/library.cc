// The library for one MPI: its shims, made from the table, and the one symbol it exports.
#include <atomic>
#include <cerrno>

#include "../mpi/functions.h"
#include "../nodes/other_jobs.h"
#include "../process/hooks.h"
#include "../record/recorder.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "calls.h"
#include "report.h"

namespace nvio {
namespace {

const FromLoader* g_loader = nullptr;

#include "shims.inc"

void* g_mpi[kEntryCount];
void* g_pmpi[kEntryCount];

// What MPI_Finalize does, for a program that ends without: of sessions alone, or by exit with files
// open. Not for one whose signal handler ends it inside nvio, with a lock held that this would wait
// for, nor in a child that has the memory of its parent, or a copy of it.
__attribute__((destructor)) void leave_at_exit() {
  if (g_loader == nullptr || *g_loader->inside() != 0) return;
  if (Recorder* recorder = Recorder::the(); recorder != nullptr) return recorder->finish();
  Process& process = Process::the();
  Job* job = process.is_original() ? process.joined() : nullptr;
  if (job == nullptr) return;
  const Inside here;
  or_no_memory([&] { return report_end(process.settings(), job->counters()), 0; });
  or_no_memory([&] { return process.leave(), 0; });
}

}  // namespace

void* next_of(Level level, std::size_t index) {
  static std::atomic<void*> found[2][kEntryCount];
  std::atomic<void*>& slot = found[static_cast<int>(level)][index];
  void* function = slot.load(std::memory_order_acquire);
  if (function == nullptr) {
    const std::string name = kEntryNames[index];
    function = g_loader->next_symbol((level == Level::mpi ? name : "P" + name).c_str());
    slot.store(function, std::memory_order_release);
  }
  return function;
}

}  // namespace nvio

extern "C" __attribute__((visibility("default"))) bool nvio_attach(const nvio::FromLoader* loader,
                                                                   nvio::FromLibrary* library) {
  using namespace nvio;
  if (loader->version != kContractVersion) return false;
  static FromLoader kept = *loader;
  g_loader = &kept;
  if (!find_mpi_functions(kept.next_symbol)) return false;
  Process::the().attach(kept);
  report_begin(Process::the().settings());
  name_calls(kEntryNames, kEntryCount);
  fill_mpi(g_mpi);
  fill_pmpi(g_pmpi);
  Recorder* recorder = Recorder::the();
  if (recorder != nullptr) recorder->attach(kept);
  *library = {kContractVersion, g_mpi, g_pmpi,
              recorder != nullptr ? &recorder->hooks() : &Process::the().hooks()};
  return true;
}

extern "C" __attribute__((visibility("default"))) const nvio::PosixHooks* nvio_watch(
    const nvio::FromLoader* loader) {
  using namespace nvio;
  if (loader->version != kContractVersion) return nullptr;
  set_real(loader->real);
  // Never destroyed: what the program does at its exit is looked at, too.
  static const Settings& settings = *new Settings(read_settings_of_process());
  static const PosixHooks hooks = [] {
    PosixHooks only{};
    only.opened = [](int fd) {
      return as_posix(or_no_memory([fd] { return opened_outside(settings, fd), 0; }));
    };
    only.step_aside_path = [](const char* path) {
      return as_posix(or_no_memory([path] { return step_aside_elsewhere(settings, path); }));
    };
    only.correct_size = [](struct stat* status) {
      return as_posix(or_no_memory([status] { return write_back_elsewhere(settings, status), 0; }));
    };
    return only;
  }();
  return &hooks;
}
