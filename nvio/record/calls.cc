#include "calls.h"

#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "../mpi/functions.h"

namespace nvio {
namespace {

struct Recorded {
  std::uint16_t file = 0;
  std::uint32_t ranks = 1;
  std::uint64_t flags = 0;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<MPI_File, Recorded> handles;
};

Table& table() {
  static Table* all = new Table;  // never destroyed: calls come till the very end
  return *all;
}

std::optional<Recorded> find(MPI_File fh) {
  const std::lock_guard guard(table().mutex);
  const auto found = table().handles.find(fh);
  if (found == table().handles.end()) return std::nullopt;
  return found->second;
}

struct Current {
  bool noted = false;
  Recorded handle;
  std::uint64_t start = 0;
};
thread_local Current g_current;

// Of the nonblocking ones, no rank waits for the others.
bool is_collective(const char* name) {
  return (std::strstr(name, "_all") != nullptr || std::strstr(name, "_ordered") != nullptr) &&
         std::strstr(name, "_iread") == nullptr && std::strstr(name, "_iwrite") == nullptr &&
         std::strstr(name, "_end") == nullptr;
}

std::uint64_t flags_of(int amode) {
  std::uint64_t flags = 0;
  if ((amode & MPI_MODE_WRONLY) == 0) flags |= kTraceReads;
  if ((amode & MPI_MODE_RDONLY) == 0) flags |= kTraceWrites;
  if ((amode & MPI_MODE_DELETE_ON_CLOSE) != 0) flags |= kTraceDeletes;
  return flags;
}

}  // namespace

int record_open(Recorder& recorder, int (*next)(MPI_Comm, const char*, int, MPI_Info, MPI_File*),
                MPI_Comm comm, const char* path, int amode, const char* filename, MPI_Info info,
                MPI_File* fh) {
  recorder.remember_opened();
  const std::uint64_t start = recorder.now();
  const int result = next(comm, filename, amode, info, fh);
  const std::uint64_t end = recorder.now();
  const int file = recorder.track_opened(path);
  if (result != MPI_SUCCESS || file < 0) return result;
  int ranks = 1;
  mpi_functions().comm_size(comm, &ranks);
  const Recorded handle{static_cast<std::uint16_t>(file), static_cast<std::uint32_t>(ranks),
                        flags_of(amode)};
  {
    const std::lock_guard guard(table().mutex);
    table().handles[*fh] = handle;
  }
  recorder.note(
      {TraceKind::open, 0, handle.file, handle.ranks, 0, handle.flags, start, end - start});
  return result;
}

int record_close(Recorder& recorder, int (*next)(MPI_File*), MPI_File* fh) {
  const std::optional<Recorded> handle = find(*fh);
  if (handle) {
    const std::lock_guard guard(table().mutex);
    table().handles.erase(*fh);
  }
  const std::uint64_t start = recorder.now();
  const int result = next(fh);
  if (handle) recorder.note(TraceKind::close, handle->file, start, 0, handle->flags, handle->ranks);
  return result;
}

int record_sync(Recorder& recorder, int (*next)(MPI_File), MPI_File fh) {
  const std::optional<Recorded> handle = find(fh);
  const std::uint64_t start = recorder.now();
  const int result = next(fh);
  if (handle) recorder.note(TraceKind::sync, handle->file, start, 0, 0, handle->ranks);
  return result;
}

void begin_recorded(Recorder& recorder, const char* name, MPI_File fh) {
  if (!is_collective(name)) return;
  const std::optional<Recorded> handle = find(fh);
  if (handle) g_current = {true, *handle, recorder.now()};
}

void end_recorded() {
  if (!g_current.noted) return;
  g_current.noted = false;
  Recorder::the()->note(TraceKind::collective, g_current.handle.file, g_current.start, 0, 0,
                        g_current.handle.ranks);
}

}  // namespace nvio
