#include "handles.h"

#include <dlfcn.h>

#include <cstring>
#include <shared_mutex>
#include <unordered_map>

#include "../mpi/functions.h"
#include "../mpi/type_map.h"

namespace nvio {
namespace {

struct HandleTable {
  std::shared_mutex mutex;
  std::unordered_map<MPI_File, std::unique_ptr<Handle>> handles;
  std::atomic<std::uint64_t> generation{1};  // grows with every change: voids what threads keep
};

HandleTable& table() {
  static HandleTable* all = new HandleTable;  // never destroyed: calls come till the very end
  return *all;
}

}  // namespace

Handle* find_handle(MPI_File fh) {
  struct Last {
    MPI_File fh{};
    Handle* handle = nullptr;
    std::uint64_t generation = 0;
  };
  static thread_local Last last;
  HandleTable& all = table();
  if (last.generation == all.generation.load(std::memory_order_acquire) && last.fh == fh) {
    return last.handle;
  }
  const std::shared_lock guard(all.mutex);
  const auto found = all.handles.find(fh);
  last = {fh, found == all.handles.end() ? nullptr : found->second.get(), all.generation.load()};
  return last.handle;
}

void add_handle(MPI_File fh, std::unique_ptr<Handle> handle) {
  const std::unique_lock guard(table().mutex);
  table().handles[fh] = std::move(handle);
  table().generation.fetch_add(1);
}

std::unique_ptr<Handle> take_handle(MPI_File fh) {
  const std::unique_lock guard(table().mutex);
  const auto found = table().handles.find(fh);
  if (found == table().handles.end()) return nullptr;
  std::unique_ptr<Handle> handle = std::move(found->second);
  table().handles.erase(found);
  table().generation.fetch_add(1);
  return handle;
}

void bring_up(MPI_File fh, Handle& handle) {
  if (handle.ahead) mpi_functions().file_seek(fh, handle.position, MPI_SEEK_SET);
  handle.known = handle.ahead = false;
}

namespace {

// Without asking the MPI: a question about no type at all, or in MPICH one about large counts by
// the older call, ends the program.
bool is_predefined(MPI_Datatype datatype) {
  if (datatype == mpi_functions().datatype_null) return false;
#ifdef OPEN_MPI
  // Variables of the library, or the program's copies of them; all others lie on the heap.
  Dl_info object{};
  return dladdr(datatype, &object) != 0;
#else
  return static_cast<unsigned>(datatype) >> 30 == 1;  // of a handle's kinds, by MPICH's ABI
#endif
}

}  // namespace

// Only predefined types are remembered: their handles never come to mean anything else.
MPI_Offset plain_size(MPI_Datatype datatype) {
  struct Known {
    MPI_Datatype type{};
    MPI_Offset size = 0;
  };
  static thread_local Known known[8];
  static thread_local unsigned next = 0;
  for (const Known& one : known) {
    if (one.size != 0 && one.type == datatype) return one.size;
  }
  const MpiFunctions& mpi = mpi_functions();
  int size = 0;
  int length = 0;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  char name[MPI_MAX_OBJECT_NAME] = {};
  const bool plain = is_predefined(datatype) && mpi.type_size(datatype, &size) == MPI_SUCCESS &&
                     mpi.type_get_extent(datatype, &lower, &extent) == MPI_SUCCESS && lower == 0 &&
                     size > 0 && extent == size &&
                     mpi.type_get_name(datatype, name, &length) == MPI_SUCCESS &&
                     std::strncmp(name, "MPI_", 4) == 0 && !is_pair(name);
  if (!plain) return 0;
  known[next++ % 8] = {datatype, size};
  return size;
}

}  // namespace nvio
