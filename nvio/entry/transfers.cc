#include "transfers.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "../mpi/functions.h"
#include "../mpi/type_map.h"
#include "../process/hooks.h"
#include "handles.h"
#include "view.h"

namespace nvio {
namespace {

constexpr std::size_t kRunsAtATime = 4096;
constexpr MPI_Offset kMostPacked = 64 << 20;  // bytes of a buffer that does not lie side by side

// How the elements of a transfer lie in memory.
struct Elements {
  MPI_Offset size = 0;    // of one, in bytes; 0: the MPI must do it
  bool is_plain = false;  // side by side
};

Elements elements_of(MPI_Datatype datatype) {
  if (const MPI_Offset size = plain_size(datatype); size != 0) return {size, true};
  int size = 0;
  const bool is_one = datatype != mpi_functions().datatype_null &&
                      mpi_functions().type_size(datatype, &size) == MPI_SUCCESS && size > 0;
  return {is_one ? size : 0, false};
}

// The bytes of a transfer of such elements, or -1 when they cannot be counted.
MPI_Offset length_of(const Transfer& transfer, const Elements& elements) {
  const bool is_counted =
      elements.size != 0 && transfer.count >= 0 && transfer.count <= INT64_MAX / 4 / elements.size;
  return is_counted ? transfer.count * elements.size : -1;
}

// What of a datatype cannot be packed the MPI's own call tells: the world's error handler, which
// may end the program, hears nothing of it.
MPI_Comm packing_comm() {
  static const MPI_Comm made = [] {
    const MpiFunctions& mpi = mpi_functions();
    MPI_Comm comm{};
    mpi.comm_dup(mpi.comm_self, &comm);
    mpi.comm_set_errhandler(comm, mpi.errors_return);
    return comm;
  }();
  return made;
}

// The bytes of a transfer side by side: the program's own, or a copy.
class Buffer {
 public:
  Buffer(const Transfer& transfer, bool is_plain, MPI_Offset bytes)
      : transfer_(transfer), bytes_(static_cast<int>(bytes)), is_plain_(is_plain) {
    if (!is_plain) copy_.reset(new (std::nothrow) char[static_cast<std::size_t>(bytes)]);
  }
  bool is_there() const { return is_plain_ || copy_ != nullptr; }
  char* data() { return is_plain_ ? static_cast<char*>(transfer_.buf) : copy_.get(); }

  // Before what was written is taken, and when what was read has come.
  bool gather() {
    int position = 0;
    return is_plain_ || (mpi_functions().pack(transfer_.buf, static_cast<int>(transfer_.count),
                                              transfer_.datatype, copy_.get(), bytes_, &position,
                                              packing_comm()) == MPI_SUCCESS &&
                         position == bytes_);
  }
  bool scatter() {
    int position = 0;
    return is_plain_ ||
           (mpi_functions().unpack(copy_.get(), bytes_, &position, transfer_.buf,
                                   static_cast<int>(transfer_.count), transfer_.datatype,
                                   packing_comm()) == MPI_SUCCESS &&
            position == bytes_);
  }

 private:
  const Transfer& transfer_;
  int bytes_;
  bool is_plain_;
  std::unique_ptr<char[]> copy_;
};

// The byte of the view where a transfer starts, or -1 when the MPI must do it. With the individual
// pointer, the handle's lock must be held.
MPI_Offset start_of(const Transfer& transfer, Handle& handle, MPI_Offset bytes) {
  if (bytes % handle.etype_size != 0) return -1;
  MPI_Offset offset = transfer.offset;
  if (!transfer.explicit_offset) {
    if (!handle.known) {
      if (!handle.view->is_one_run()) return -1;
      if (mpi_functions().file_get_position(transfer.fh, &handle.position) != MPI_SUCCESS) {
        return -1;
      }
      handle.known = true;
      handle.ahead = false;
    }
    offset = handle.position;
  }
  if (offset < 0 || offset > (INT64_MAX - bytes) / handle.etype_size) return -1;
  return offset * handle.etype_size;
}

// Side by side in the file. Returns the bytes done, fewer at the file's end, or -1.
ssize_t move_run(const Transfer& transfer, Handle& handle, std::uint64_t at, char* data,
                 std::size_t length) {
  JobFile& file = *handle.file;
  if (!transfer.writes) return file.read(at, data, length);
  const ssize_t done =
      handle.is_async ? file.write_later(at, data, length) : file.write(at, data, length);
  // Where a part was refused, the MPI writes all of it again, and tells.
  return done == static_cast<ssize_t>(length) ? done : -1;
}

Direction direction_of(const Transfer& transfer) {
  return transfer.writes ? Direction::write : Direction::read;
}

// In pieces. Reads are never short: what MPIs do with a piece across the end of file is theirs.
bool move_pieces(const Transfer& transfer, JobFile& file, const View& view, std::uint64_t position,
                 char* data, std::uint64_t length, std::uint64_t end) {
  if (!transfer.writes && !file.reaches(end)) return false;
  static thread_local std::vector<FileRun> runs;
  View::Walk walk(view, position, length);
  const Direction direction = direction_of(transfer);
  const auto is_long = [&](const FileRun& run) { return run.length >= file.entry().bypass_size; };
  for (;;) {
    // The first ones go to the file, to learn whether it is slow; where it is not, the MPI does
    // all. What is long, and goes round the cache, does not show that.
    const bool takes_runs = file.takes_runs(direction);
    const std::uint64_t bytes = walk.next(runs, takes_runs ? kRunsAtATime : kFirstSamples);
    if (bytes == 0) return true;
    if (!takes_runs && (!file.lacks_times(direction) || std::ranges::any_of(runs, is_long))) {
      return false;
    }
    if (!(transfer.writes ? file.write_runs(runs, data) : file.read_runs(runs, data))) return false;
    data += bytes;
  }
}

// Whether a transfer of so many bytes is nvio's at all. What it does not cache the MPI's own code
// does faster where ranks do it together, and in pieces.
bool is_served(const Transfer& transfer, Way way, Handle& handle, MPI_Offset bytes) {
  const bool is_one_run = handle.view->is_one_run();
  if (is_one_run && way == Way::alone) return true;
  if (bytes == 0) return false;
  const JobFile& file = *handle.file;
  const Direction direction = direction_of(transfer);
  if (is_one_run) {
    const bool is_long = static_cast<std::uint64_t>(bytes) >= handle.file->entry().bypass_size;
    return way != Way::later && !is_long && file.takes_runs(direction);
  }
  // What is written back later falls into the windows of another job that has read them before.
  if (transfer.writes && (handle.amode & MPI_MODE_UNIQUE_OPEN) == 0) return false;
  return file.takes_runs(direction) || file.lacks_times(direction);
}

// Where the individual pointer will be when the MPI has done a transfer; nothing where it is not
// known, or where the MPI can be asked: not in a view of pieces, in some of which ROMIO errs. The
// handle's lock must be held.
std::optional<MPI_Offset> position_after(const Transfer& transfer, const Handle& handle) {
  const MPI_Offset bytes = length_of(transfer, elements_of(transfer.datatype));
  if (!handle.known || !handle.view || handle.view->is_one_run() || bytes <= 0 ||
      bytes % handle.etype_size != 0) {
    return std::nullopt;
  }
  const MPI_Offset after = handle.position + bytes / handle.etype_size;
  const auto last = handle.view->offset_of(
      static_cast<std::uint64_t>(after) * static_cast<std::uint64_t>(handle.etype_size) - 1);
  // A read across the end of file may move it less far.
  const bool is_whole =
      last && (transfer.writes || inside([&] { return handle.file->reaches(*last + 1); }));
  return is_whole ? std::optional(after) : std::nullopt;
}

}  // namespace

std::optional<MPI_Offset> serve(const Transfer& transfer, Way way) {
  Handle* handle = find_handle(transfer.fh);
  const int access = MPI_MODE_RDWR | (transfer.writes ? MPI_MODE_WRONLY : MPI_MODE_RDONLY);
  if (handle == nullptr || !handle->view || handle->is_atomic || (handle->amode & access) == 0 ||
      (handle->amode & MPI_MODE_SEQUENTIAL) != 0 ||
      (way == Way::together_later && !handle->joins_later)) {
    return std::nullopt;
  }
  const Elements elements = elements_of(transfer.datatype);
  const MPI_Offset bytes = length_of(transfer, elements);
  if (bytes < 0 || (transfer.buf == nullptr && bytes != 0)) return std::nullopt;
  if (!elements.is_plain && (bytes == 0 || bytes > kMostPacked || transfer.count > INT_MAX)) {
    return std::nullopt;
  }
  if (!is_served(transfer, way, *handle, bytes)) return std::nullopt;
  std::unique_lock pointer(handle->pointer, std::defer_lock);
  if (!transfer.explicit_offset) pointer.lock();
  const MPI_Offset start = start_of(transfer, *handle, bytes);
  if (start < 0) return std::nullopt;
  const View& view = *handle->view;
  const auto position = static_cast<std::uint64_t>(start);
  const auto length = static_cast<std::uint64_t>(bytes);
  const auto at = view.offset_of(position);
  const auto last = view.offset_of(position + std::max<std::uint64_t>(length, 1) - 1);
  if (!at || !last || *last == INT64_MAX) return std::nullopt;

  Buffer buffer(transfer, elements.is_plain, bytes);
  if (!buffer.is_there() || (transfer.writes && !buffer.gather())) return std::nullopt;
  MPI_Offset done = bytes;
  if (view.is_one_run()) {
    done = inside([&] { return move_run(transfer, *handle, *at, buffer.data(), length); });
  } else if (!inside([&] {
               return move_pieces(transfer, *handle->file, view, position, buffer.data(), length,
                                  *last + 1);
             })) {
    return std::nullopt;
  }
  // Errors, and ends of file inside an element, are the MPI's to tell: it does the same again.
  // And MPIs differ in where a read across the end of file leaves the individual pointer.
  const bool may_be_short = transfer.explicit_offset && elements.is_plain && way == Way::alone;
  if (done < 0 || done % elements.size != 0 || (!may_be_short && done != bytes)) {
    return std::nullopt;
  }
  if (!transfer.writes && !buffer.scatter()) return std::nullopt;
  if (!transfer.explicit_offset) {
    handle->position += done / handle->etype_size;
    handle->ahead = true;
  }
  return done;
}

Passed::Passed(const Transfer& transfer) : handle_(begin_passed(transfer.fh)) {
  if (handle_ == nullptr || transfer.explicit_offset) return;
  pointer_ = std::unique_lock(handle_->pointer);
  after_ = position_after(transfer, *handle_);
  bring_up(transfer.fh, *handle_);
}

int Passed::ended(int result) {
  if (after_ && result == MPI_SUCCESS) {
    handle_->position = *after_;
    handle_->known = true;
  }
  return result;
}

void tell(MPI_Status* status, MPI_Datatype datatype, MPI_Offset bytes) {
  if (status == MPI_STATUS_IGNORE) return;
  const MpiFunctions& mpi = mpi_functions();
  const MPI_Offset size = plain_size(datatype);
  if (size != 0) {
    mpi.status_set_elements(status, datatype, bytes / size);
  } else {
    mpi.status_set_elements(status, mpi.byte, bytes);
  }
  mpi.status_set_cancelled(status, 0);
}

namespace {

// A request of ours: what it moved, and the MPI's own that it stands for.
struct Later {
  MPI_Offset bytes = 0;
  MPI_Request request{};
  MPI_Request joined{};
  bool is_joined = false;
  int result = MPI_SUCCESS;
};

// Called when the program learns that the request is complete.
int query(void* state, MPI_Status* status) {
  Later& later = *static_cast<Later*>(state);
  if (later.is_joined) {
    later.result = mpi_functions().wait(&later.joined, MPI_STATUS_IGNORE);
    later.is_joined = false;
  }
  tell(status, mpi_functions().byte, later.bytes);
  return later.result;
}

int forget(void* state) {
  delete static_cast<Later*>(state);
  return MPI_SUCCESS;
}

int cancel(void*, int) { return MPI_SUCCESS; }

// MPICH's: called while the program tests or waits.
int poll(void* state, MPI_Status*) {
  Later& later = *static_cast<Later*>(state);
  int flag = 0;
  later.result = mpi_functions().test(&later.joined, &flag, MPI_STATUS_IGNORE);
  if (flag == 0 && later.result == MPI_SUCCESS) return MPI_SUCCESS;
  later.is_joined = false;
  return mpi_functions().grequest_complete(later.request);
}

int wait_all(int count, void** states, double, MPI_Status*) {
  for (int i = 0; i < count; ++i) {
    Later& later = *static_cast<Later*>(states[i]);
    if (!later.is_joined) continue;
    later.result = mpi_functions().wait(&later.joined, MPI_STATUS_IGNORE);
    later.is_joined = false;
    mpi_functions().grequest_complete(later.request);
  }
  return MPI_SUCCESS;
}

}  // namespace

int make_request(MPI_File fh, MPI_Offset bytes, const MPI_Request* joined, MPI_Request* request) {
  const MpiFunctions& mpi = mpi_functions();
  auto state = std::make_unique<Later>();
  state->bytes = bytes;
  if (joined != nullptr) {
    state->joined = *joined;
    int flag = 0;
    state->result = mpi.test(&state->joined, &flag, MPI_STATUS_IGNORE);
    state->is_joined = flag == 0 && state->result == MPI_SUCCESS;
  }
  Later& later = *state;
  int started = MPI_SUCCESS;
  if (later.is_joined && mpi.grequest_start_polled != nullptr) {
    started =
        mpi.grequest_start_polled(query, forget, cancel, poll, wait_all, state.get(), request);
    if (started != MPI_SUCCESS) return started;
    later.request = *request;
    static_cast<void>(state.release());  // NOLINT(bugprone-unused-return-value): `forget` frees it
    return MPI_SUCCESS;
  }
  started = mpi.grequest_start(query, forget, cancel, state.get(), request);
  if (started != MPI_SUCCESS) return started;
  static_cast<void>(state.release());  // NOLINT(bugprone-unused-return-value): `forget` frees it
  if (later.is_joined) {
    // The others are waited for in a test, too. OMPIO's own ranks wait for nobody; where they do,
    // later calls are the MPI's.
    if (Handle* handle = find_handle(fh); handle != nullptr) handle->joins_later = false;
  }
  return mpi.grequest_complete(*request);
}

void begin_split(MPI_File fh, MPI_Offset bytes) {
  if (Handle* handle = find_handle(fh); handle != nullptr) handle->split = bytes;
}

std::optional<MPI_Offset> end_split(MPI_File fh) {
  Handle* handle = find_handle(fh);
  return handle == nullptr ? std::nullopt : std::exchange(handle->split, std::nullopt);
}

// This rank may be who moves the bytes of those that nvio does not serve, with windows.
void join(const Transfer& transfer, Way way) {
  if (!transfer.writes) return;
  begin_writing_call();
  Handle* handle = find_handle(transfer.fh);
  if (way == Way::together_later && handle != nullptr) handle->file->expect_windows();
}

MPI_Datatype byte_type() { return mpi_functions().byte; }

}  // namespace nvio
