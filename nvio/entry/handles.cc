#include "handles.h"

#include <atomic>
#include <shared_mutex>
#include <unordered_map>

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

}  // namespace nvio
