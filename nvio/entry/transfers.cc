#include "transfers.h"

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "../cache/pieces.h"
#include "../mpi/functions.h"
#include "../mpi/type_map.h"
#include "../process/hooks.h"
#include "../record/calls.h"
#include "handles.h"

namespace nvio {
namespace {

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

ssize_t write_run(const Handle& handle, std::uint64_t at, const char* data, std::size_t length) {
  switch (handle.writes) {
    case Writes::sync:
      break;
    case Writes::async:
      return handle.file->write_later(at, data, length);
    case Writes::async_manager:
      return handle.file->hand_over(at, data, length);
  }
  return handle.file->write(at, data, length);
}

// Side by side in the file. Returns the bytes done, fewer at the file's end, or -1.
ssize_t move_run(const Transfer& transfer, Handle& handle, std::uint64_t at, char* data,
                 std::size_t length) {
  if (!transfer.writes) return handle.file->read(at, data, length);
  const ssize_t done = write_run(handle, at, data, length);
  // Where a part was refused, the MPI writes all of it again, and tells.
  return done == static_cast<ssize_t>(length) ? done : -1;
}

Direction direction_of(const Transfer& transfer) {
  return transfer.writes ? Direction::write : Direction::read;
}

// In pieces. Reads are never short: what MPIs do with a piece across the end of file is theirs.
bool move_runs(const Transfer& transfer, JobFile& file, const View& view, const InView& asked,
               char* data) {
  if (!transfer.writes && !file.reaches(asked.end)) return false;
  return move_pieces(file, view, direction_of(transfer), asked.position, asked.length,
                     [&](std::span<const FileRun> runs, std::uint64_t bytes) {
                       char* at = std::exchange(data, data + bytes);
                       return transfer.writes ? file.write_runs(runs, at)
                                              : file.read_runs(runs, at);
                     });
}

// Whether a transfer of so many bytes is nvio's at all, as the file is cached now.
bool is_served(const Transfer& transfer, Way way, const Handle& handle, MPI_Offset bytes) {
  const bool is_one_run = handle.view->is_one_run();
  if (is_one_run && way == Way::alone) return true;
  return !(is_one_run && way == Way::later) &&
         takes(*handle.file, *handle.view, direction_of(transfer),
               static_cast<std::uint64_t>(bytes));
}

std::optional<MPI_Offset> serve_throwing(const Transfer& transfer, Way way) {
  Handle* handle = find_handle(transfer.fh);
  if (handle == nullptr || (way == Way::together_later && !handle->joins_later)) {
    return std::nullopt;
  }
  const Elements elements = elements_of(transfer.datatype);
  const MPI_Offset bytes = bytes_of(transfer, elements, *handle);
  if (bytes < 0 || !is_served(transfer, way, *handle, bytes)) return std::nullopt;
  std::unique_lock pointer(handle->pointer, std::defer_lock);
  if (!transfer.explicit_offset) pointer.lock();
  const std::optional<InView> asked = in_view(transfer, *handle, bytes);
  if (!asked) return std::nullopt;

  const View& view = *handle->view;
  Buffer buffer(transfer, elements.is_plain, bytes);
  if (!buffer.is_there() || (transfer.writes && !buffer.gather())) return std::nullopt;
  MPI_Offset done = bytes;
  if (view.is_one_run()) {
    done = inside(
        [&] { return move_run(transfer, *handle, asked->begin, buffer.data(), asked->length); });
  } else if (!inside(
                 [&] { return move_runs(transfer, *handle->file, view, *asked, buffer.data()); })) {
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

}  // namespace

// What lacks memory the MPI does, all of it again.
std::optional<MPI_Offset> serve(const Transfer& transfer, Way way) {
  try {
    return serve_throwing(transfer, way);
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

Passed::Passed(const Transfer& transfer, Way way) : shown_(begin_passed(transfer.fh)) {
  if (shown_ == nullptr) return;
  pointer_ = std::unique_lock(shown_->pointer, std::defer_lock);
  if (!transfer.explicit_offset) pointer_.lock();
  const bool is_recorded = Recorder::the() != nullptr;
  if (is_recorded) record_asked(transfer, way);
  if (transfer.explicit_offset) return;
  const auto reaches = [&](std::uint64_t end) {
    return is_recorded ? recorded_file_reaches(transfer.fh, end)
                       : inside([&] { return find_handle(transfer.fh)->file->reaches(end); });
  };
  if (const auto after = position_after(transfer, *shown_);
      after && (transfer.writes || reaches(after->end))) {
    after_ = after->position;
  }
  bring_up(transfer.fh, *shown_);
}

int Passed::ended(int result) {
  if (after_ && result == MPI_SUCCESS) {
    shown_->position = *after_;
    shown_->known = true;
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
  std::unique_ptr<Later> state(new (std::nothrow) Later);
  if (state == nullptr) return MPI_ERR_NO_MEM;
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
