// A program that something befalls at one of nvio's allocations while it opens a file: it is
// refused, or a signal's handler ends the program just then.
//
//   allocated FILE exit|refused N
//   allocated FILE killed|opened
//
// N counts from 0. Prints "reached" where there are so many, and "written" where it could open the
// file at once or, with memory, again, and wrote its beginning. `killed` dies with that in the
// cache, `opened` writes nothing.

#include <link.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "checks.h"

extern "C" void* malloc_of_libc(std::size_t size) __asm__("__libc_malloc");

namespace {

using checks::give_up;

const std::string kOfKilled = "of the killed run";

enum class Befalls { nothing, refusal, exit };
std::atomic<Befalls> g_befalls{Befalls::nothing};
std::atomic<long> g_left{0};  // allocations of nvio until then
std::uintptr_t g_begin = 0;   // where nvio's library for this MPI lies
std::uintptr_t g_end = 0;

int find_library(dl_phdr_info* object, std::size_t /*size*/, void* /*unused*/) {
  if (std::strstr(object->dlpi_name, "/libnvio-") == nullptr) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    g_begin = object->dlpi_addr + part.p_vaddr;
    g_end = g_begin + part.p_memsz;
  }
  return 1;
}

bool open_and_write(const char* path, const std::string& bytes) {
  MPI_File file;
  if (MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file) !=
      MPI_SUCCESS) {
    return false;
  }
  g_befalls = Befalls::nothing;
  MPI_File_write_at(file, 0, bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
                    MPI_STATUS_IGNORE);
  if (bytes == kOfKilled) kill(getpid(), SIGKILL);
  return MPI_File_close(&file) == MPI_SUCCESS;
}

}  // namespace

extern "C" void* malloc(std::size_t size) {
  const auto caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  if (g_befalls.load() != Befalls::nothing && caller >= g_begin && caller < g_end &&
      g_left.fetch_sub(1) == 0) {
    const bool ends = g_befalls.exchange(Befalls::nothing) == Befalls::exit;
    (void)!write(STDOUT_FILENO, "reached\n", 8);
    if (ends) std::exit(0);
    return nullptr;
  }
  return malloc_of_libc(size);
}

int main(int argc, char** argv) {
  checks::begin("allocated", &argc, &argv, argc == 3 ? 3 : 4);
  const std::string what = argv[2];
  const std::string bytes = what == "killed" ? kOfKilled : what == "opened" ? "" : "newer";
  MPI_File_delete((std::string(argv[1]) + ".none").c_str(), MPI_INFO_NULL);  // which loads it
  dl_iterate_phdr(find_library, nullptr);
  if (g_end == 0) give_up("nvio's library");
  if (argc == 4) {
    g_left = std::atol(argv[3]);
    g_befalls = what == "exit" ? Befalls::exit : Befalls::refusal;
  }
  bool is_written = open_and_write(argv[1], bytes);
  g_befalls = Befalls::nothing;
  if (!is_written) is_written = open_and_write(argv[1], bytes);
  if (is_written) std::puts("written");
  MPI_Finalize();
  return 0;
}
