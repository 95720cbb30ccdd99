#include "calls.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "../mpi/functions.h"
#include "../system/real.h"

namespace nvio {
namespace {

struct Recorded : Shown {
  std::uint16_t file = 0;
  int descriptor = -1;  // one that the MPI has of it
  std::uint32_t ranks = 1;
  std::uint64_t flags = 0;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<MPI_File, std::unique_ptr<Recorded>> handles;
};

Table& table() {
  static Table* all = new Table;  // never destroyed: calls come till the very end
  return *all;
}

Recorded* find(MPI_File fh) {
  const std::lock_guard guard(table().mutex);
  const auto found = table().handles.find(fh);
  return found == table().handles.end() ? nullptr : found->second.get();
}

// The call that this thread is in.
struct Current {
  Recorded* handle = nullptr;  // none: nothing is noted of it
  bool is_collective = false;
  std::uint64_t start = 0;
  std::optional<TraceCall> asked;
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

int record_open(Recorder& recorder, const std::function<int()>& next, MPI_Comm comm,
                const char* path, int amode, int shown, MPI_File* fh) {
  recorder.remember_opened();
  const std::uint64_t start = recorder.now();
  const int result = next();
  const std::uint64_t end = recorder.now();
  const Recorder::Tracked tracked = recorder.track_opened(path);
  if (result != MPI_SUCCESS || tracked.number < 0) return result;
  int ranks = 1;
  mpi_functions().comm_size(comm, &ranks);
  auto handle = std::make_unique<Recorded>();
  handle->amode = shown;
  handle->file = static_cast<std::uint16_t>(tracked.number);
  handle->descriptor = tracked.descriptor;
  handle->ranks = static_cast<std::uint32_t>(ranks);
  handle->flags = flags_of(amode);
  recorder.note(
      {TraceKind::open, 0, handle->file, handle->ranks, 0, handle->flags, start, end - start});
  const std::lock_guard guard(table().mutex);
  table().handles[*fh] = std::move(handle);
  return result;
}

int record_close(Recorder& recorder, int (*next)(MPI_File*), MPI_File* fh) {
  std::unique_ptr<Recorded> handle;
  {
    const std::lock_guard guard(table().mutex);
    if (auto found = table().handles.extract(*fh)) handle = std::move(found.mapped());
  }
  const std::uint64_t start = recorder.now();
  const int result = next(fh);
  if (handle) recorder.note(TraceKind::close, handle->file, start, 0, handle->flags, handle->ranks);
  return result;
}

int record_sync(Recorder& recorder, int (*next)(MPI_File), MPI_File fh) {
  const Recorded* handle = find(fh);
  const std::uint64_t start = recorder.now();
  const int result = next(fh);
  if (handle != nullptr) recorder.note(TraceKind::sync, handle->file, start, 0, 0, handle->ranks);
  return result;
}

Shown* recorded(MPI_File fh) { return find(fh); }

bool recorded_file_reaches(MPI_File fh, std::uint64_t end) {
  const Recorded* handle = find(fh);
  struct stat status {};
  return handle != nullptr && real().fstat(handle->descriptor, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) >= end;
}

Shown* begin_recorded(Recorder& recorder, const char* name, MPI_File fh) {
  Recorded* handle = find(fh);
  g_current = {handle, is_collective(name), recorder.now(), std::nullopt};
  return handle;
}

// A nonblocking call leaves its POSIX calls to whatever the program calls later.
void record_asked(const Transfer& transfer, Way way) {
  Recorded* handle = g_current.handle;
  if (handle == nullptr || way == Way::later || way == Way::together_later) return;
  const MPI_Offset bytes = bytes_of(transfer, elements_of(transfer.datatype), *handle);
  if (bytes <= 0 || (way == Way::alone && handle->view->is_one_run())) return;
  const std::optional<InView> asked = in_view(transfer, *handle, bytes);
  if (!asked || asked->end > kMostOffset || asked->length > kMostTransfer) return;
  const int view = Recorder::the()->number_of(*handle->view);
  if (view < 0) return;
  g_current.asked = TraceCall{transfer.writes ? TraceKind::write_view : TraceKind::read_view,
                              0,
                              handle->file,
                              static_cast<std::uint32_t>(view),
                              asked->position,
                              asked->length,
                              g_current.start,
                              0};
}

void end_recorded() {
  const Current call = std::exchange(g_current, {});
  if (call.handle == nullptr || (!call.is_collective && !call.asked)) return;
  Recorder& recorder = *Recorder::the();
  const std::uint64_t lasted = recorder.now() - call.start;
  if (call.is_collective) {
    recorder.note({TraceKind::collective, 0, call.handle->file, call.handle->ranks, 0, 0,
                   call.start, lasted});
  }
  if (!call.asked) return;
  TraceCall asked = *call.asked;
  asked.duration = lasted;
  recorder.note(asked);
}

}  // namespace nvio
