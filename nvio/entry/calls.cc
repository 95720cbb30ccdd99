#include "calls.h"

#include <cerrno>
#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <utility>

#include "../mpi/ask_mpi.h"
#include "../mpi/functions.h"
#include "../process/hooks.h"
#include "../record/calls.h"
#include "../settings/launcher.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "report.h"

namespace nvio {
namespace {

thread_local int g_depth = 0;
thread_local std::size_t g_index = 0;

int mpi_error(int error) {
  switch (error) {
    case ENOSPC:
      return MPI_ERR_NO_SPACE;
    case EDQUOT:
      return MPI_ERR_QUOTA;
    case EACCES:
    case EPERM:
      return MPI_ERR_ACCESS;
    case EROFS:
      return MPI_ERR_READ_ONLY;
    case ENOMEM:
      return MPI_ERR_NO_MEM;
    default:
      return MPI_ERR_IO;
  }
}

// Tells the file's error handler of an errno value, as the MPI would have; returns its error class.
int report_error(MPI_File fh, int error) {
  if (error == 0) return MPI_SUCCESS;
  mpi_functions().file_call_errhandler(fh, mpi_error(error));
  return mpi_error(error);
}

// A file's error handler past the file's close, when it can only be told of no file at all.
class HandlerOfClosed {
 public:
  explicit HandlerOfClosed(MPI_File fh) { mpi_functions().file_get_errhandler(fh, &handler_); }
  ~HandlerOfClosed() { mpi_functions().errhandler_free(&handler_); }
  HandlerOfClosed(const HandlerOfClosed&) = delete;
  HandlerOfClosed& operator=(const HandlerOfClosed&) = delete;

  int report(int error) const {
    if (error == 0) return MPI_SUCCESS;
    const MpiFunctions& mpi = mpi_functions();
    MPI_Errhandler usual{};
    mpi.file_get_errhandler(mpi.file_null, &usual);
    mpi.file_set_errhandler(mpi.file_null, handler_);
    const int reported = report_error(mpi.file_null, error);
    mpi.file_set_errhandler(mpi.file_null, usual);
    mpi.errhandler_free(&usual);
    return reported;
  }

 private:
  MPI_Errhandler handler_{};
};

// What returns 0 or an errno value.
template <typename Act>
int inside_with_memory(Act&& act) {
  return inside([&] { return or_no_memory(act); });
}

// The path in a file name that may carry ROMIO's prefix of a file system ("ufs:/scratch/f").
std::string path_of(const char* filename) {
  struct stat status {};
  const char* colon = std::strchr(filename, ':');
  if (colon != nullptr && real().stat(filename, &status) != 0) filename = colon + 1;
  return absolute_path(filename);
}

FileSettings settings_of(MPI_Info info) {
  const MpiFunctions& mpi = mpi_functions();
  const FileSettings base = Process::the().settings().file;
  if (info == mpi.info_null) return base;
  std::vector<std::string> complaints;
  const auto value_of = [&](const std::string& key) -> std::optional<std::string> {
    char value[256] = {};
    int found = 0;
    if (mpi.info_get(info, key.c_str(), sizeof value - 1, value, &found) != MPI_SUCCESS ||
        found == 0) {
      return std::nullopt;
    }
    return value;
  };
  const FileSettings settings = apply_hints(base, value_of, complaints);
  int keys = 0;
  mpi.info_get_nkeys(info, &keys);
  for (int i = 0; i < keys; ++i) {
    char key[MPI_MAX_INFO_KEY + 1] = {};
    if (mpi.info_get_nthkey(info, i, key) != MPI_SUCCESS) break;
    if (std::string unknown = about_hint(key); !unknown.empty()) complaints.push_back(unknown);
  }
  for (const std::string& one : complaints) {
    inside([&] { Process::the().say_of_all_nodes(one + "; it is ignored"); });
  }
  return settings;
}

// What the program sees of a file that is served or recorded; else null.
Shown* find_shown(MPI_File fh) {
  return Recorder::the() != nullptr ? recorded(fh) : find_handle(fh);
}

bool is_named(const char* part) { return std::strstr(name_of_call(g_index), part) != nullptr; }

// The MPI was initialised, with this result.
int initialised(int result) {
  if (result != MPI_SUCCESS || Recorder::the() != nullptr) return result;
  Process& process = Process::the();
  if (process.is_to_ask()) {
    const Settings& settings = process.settings();
    const Asked asked =
        ask_mpi(session_name(settings), std::chrono::seconds(settings.patience), settings.quiet);
    if (!asked.is_together) process.stay_out();
    if (asked.place) process.place(*asked.place);
  }
  inside([&] { process.join_if_shared(); });
  return result;
}

}  // namespace

Nested::Nested(std::size_t index) : outermost_(g_depth++ == 0) {
  if (outermost_) {
    g_index = index;
    count_call(index);
  }
}

Nested::~Nested() {
  --g_depth;
  if (!outermost_) return;
  end_call();
  end_recorded();
}

void count_passed() {
  count_passed(g_index);
  if (is_named("write") || is_named("preallocate")) begin_writing_call();
}

Shown* begin_passed(MPI_File fh) {
  count_passed();
  if (Recorder* recorder = Recorder::the(); recorder != nullptr) {
    return begin_recorded(*recorder, name_of_call(g_index), fh);
  }
  Handle* handle = find_handle(fh);
  // The MPI goes on with it in whatever call comes next, till the program waits for it.
  if (handle != nullptr && is_named("iwrite") && is_named("_all")) handle->file->expect_windows();
  return handle;
}

void settle(MPI_File fh) {
  Shown* shown = begin_passed(fh);
  if (shown == nullptr) return;
  // A job that is served would have had its split call done at the beginning.
  if (Recorder::the() != nullptr && is_named("_end")) return;
  const std::lock_guard guard(shown->pointer);
  bring_up(fh, *shown);
}

namespace {

void tell_of_ignored(JobFile& file, const FileSettings& settings) {
  const FileEntry& entry = file.entry();
  if (entry.admit == static_cast<std::uint8_t>(settings.admit) &&
      entry.bypass_size == settings.bypass_size) {
    return;
  }
  Process::the().say_of_node("hints of a later opening",
                             entry.opened_path() +
                                 " is open already: what this opening sets of admit and "
                                 "bypass_size otherwise than the first one is ignored");
}

// This rank's share of the file.
void prefetch(JobFile& file, MPI_Comm comm) {
  int rank = 0;
  int size = 1;
  mpi_functions().comm_rank(comm, &rank);
  mpi_functions().comm_size(comm, &size);
  inside(
      [&] { file.prefetch(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size)); });
}

// `next`: the MPI's own call, with all that it was asked.
int open_file(const std::function<int()>& next, MPI_Comm comm, const char* filename, int amode,
              MPI_Info info, MPI_File* fh) {
  const FileSettings settings = settings_of(info);
  const int shown = settings.unique ? amode | MPI_MODE_UNIQUE_OPEN : amode;
  if (Recorder* recorder = Recorder::the(); recorder != nullptr) {
    return record_open(*recorder, next, comm, path_of(filename).c_str(), amode, shown, fh);
  }
  Process& process = Process::the();
  if (!settings.enabled || inside([&] { return process.job(); }) == nullptr) {
    const int opened = next();
    // The MPI keeps its handle: closing it would be a collective call that others do not make.
    return settings.enabled && process.cut_off() && opened == MPI_SUCCESS ? MPI_ERR_IO : opened;
  }
  auto handle = std::make_unique<Handle>();
  process.remember_opened();
  const int result = next();
  if (result != MPI_SUCCESS) {
    process.forget_opened();
    return result;
  }
  JobFile* file = inside(
      [&] { return process.track_opened(path_of(filename), settings, handle->descriptors); });
  if (file == nullptr) return process.is_left_out() ? MPI_ERR_IO : result;
  // From here on it is served, if need be by what POSIX calls the MPI makes of it.
  or_no_memory([&] { return tell_of_ignored(*file, settings), 0; });
  if (settings.prefetch == Prefetch::whole && (amode & MPI_MODE_WRONLY) == 0) {
    or_no_memory([&] { return prefetch(*file, comm), 0; });
  }
  handle->file = file;
  handle->amode = shown;
  handle->writes = settings.writes;
  if (or_no_memory([&] { return add_handle(*fh, std::move(handle)), 0; }) != 0) {
    inside([&] { process.joined()->release(file); });
  }
  return result;
}

}  // namespace

// What others cache, and this rank has no memory to serve, it must not go past.
int on_File_open(int (*next)(MPI_Comm, const char*, int, MPI_Info, MPI_File*), MPI_Comm comm,
                 const char* filename, int amode, MPI_Info info, MPI_File* fh) {
  std::optional<int> opened;
  const auto once = [&] { return *(opened = next(comm, filename, amode, info, fh)); };
  try {
    return open_file(std::ref(once), comm, filename, amode, info, fh);
  } catch (const std::bad_alloc&) {
    Process::the().forget_opened();
    if (!opened) once();
    return *opened == MPI_SUCCESS && Recorder::the() == nullptr ? MPI_ERR_NO_MEM : *opened;
  }
}

int on_File_close(int (*next)(MPI_File*), MPI_File* fh) {
  if (Recorder* recorder = Recorder::the(); recorder != nullptr) {
    return record_close(*recorder, next, fh);
  }
  const std::unique_ptr<Handle> handle = take_handle(*fh);
  if (handle == nullptr) return next(fh);
  // A file that goes away with this close need not be written first; whether it does is seen after.
  if ((handle->amode & MPI_MODE_DELETE_ON_CLOSE) != 0) {
    inside([&] { handle->file->cached().expect_deletion(); });
  }
  // MPICH waits for all ranks and then closes its descriptor. What is written back only then is
  // written once; but it must be done before any rank is through where each does a part of its own.
  const bool later =
      mpi_functions().has_handler_of_no_file && handle->file->is_written_back_by_any();
  const HandlerOfClosed handler(*fh);
  const bool reads = (handle->amode & MPI_MODE_RDONLY) != 0;
  const auto write_back = [&] {
    JobFile& file = *handle->file;
    return inside_with_memory(
        [&] { return reads ? file.write_back_of_reader() : file.write_back(); });
  };
  int reported = later ? MPI_SUCCESS : report_error(*fh, write_back());
  const int result = next(fh);
  if (later) reported = handler.report(write_back());
  // Our own handle goes last: until then the pointer stays good, and no descriptor's is another's.
  const int last = inside_with_memory([&] {
    Process::the().forget_descriptors(handle->descriptors, handle->file);
    Job* job = Process::the().joined();  // left at MPI_Finalize, which a session may outlast
    return job != nullptr ? job->release(handle->file) : 0;
  });
  if (reported == MPI_SUCCESS && last != 0) reported = mpi_error(last);
  return result != MPI_SUCCESS ? result : reported;
}

int on_File_set_view(int (*next)(MPI_File, MPI_Offset, MPI_Datatype, MPI_Datatype, const char*,
                                 MPI_Info),
                     MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                     const char* datarep, MPI_Info info) {
  settle(fh);
  const int result = next(fh, disp, etype, filetype, datarep, info);
  Shown* shown = find_shown(fh);
  if (shown == nullptr) return result;
  const std::lock_guard guard(shown->pointer);
  shown->known = shown->ahead = false;
  if (result == MPI_SUCCESS) shown->set_view(disp, etype, filetype, datarep);
  return result;
}

int on_File_get_position(int (*next)(MPI_File, MPI_Offset*), MPI_File fh, MPI_Offset* offset) {
  if (Shown* shown = find_shown(fh); shown != nullptr && offset != nullptr) {
    const std::lock_guard guard(shown->pointer);
    if (shown->known && Recorder::the() != nullptr) return next(fh, offset);
    if (shown->known) {
      *offset = shown->position;
      return MPI_SUCCESS;
    }
  }
  settle(fh);
  return next(fh, offset);
}

int on_File_seek(int (*next)(MPI_File, MPI_Offset, int), MPI_File fh, MPI_Offset offset,
                 int whence) {
  Shown* shown = begin_passed(fh);
  if (shown == nullptr) return next(fh, offset, whence);
  const std::lock_guard guard(shown->pointer);
  bring_up(fh, *shown);
  const int result = next(fh, offset, whence);
  if (result == MPI_SUCCESS && whence == MPI_SEEK_SET) {
    shown->position = offset;
    shown->known = true;
  }
  return result;
}

int on_File_set_atomicity(int (*next)(MPI_File, int), MPI_File fh, int flag) {
  settle(fh);
  const int result = next(fh, flag);
  if (Shown* shown = find_shown(fh); shown != nullptr && result == MPI_SUCCESS) {
    shown->is_atomic = flag != 0;
  }
  return result;
}

// Ours first: ROMIO leaves out the fsync when it has not written itself.
int on_File_sync(int (*next)(MPI_File), MPI_File fh) {
  count_passed();
  if (Recorder* recorder = Recorder::the(); recorder != nullptr) {
    return record_sync(*recorder, next, fh);
  }
  Handle* handle = find_handle(fh);
  const int error =
      handle == nullptr ? 0 : inside_with_memory([&] { return handle->file->sync(); });
  if (error != 0) {  // the program's handler may ask the MPI where its pointer is
    const std::lock_guard guard(handle->pointer);
    bring_up(fh, *handle);
  }
  const int reported = report_error(fh, error);
  const int result = next(fh);
  return result != MPI_SUCCESS ? result : reported;
}

int on_Finalize(int (*next)()) {
  if (Recorder* recorder = Recorder::the(); recorder != nullptr) {
    // Afterwards: whoever comes later is still at work, and no second program of the script.
    const int result = next();
    recorder->finish();
    return result;
  }
  Process& process = Process::the();
  const Counters none;
  Job* job = process.joined();
  inside_with_memory(
      [&] { return report_end(process.settings(), job == nullptr ? none : job->counters()), 0; });
  // Callbacks of MPI_COMM_SELF's attributes are the program's: their calls are no calls of the MPI.
  const int depth = std::exchange(g_depth, 0);
  const int result = next();
  g_depth = depth;
  inside_with_memory([&] { return process.leave(), 0; });
  return result;
}

int on_Init(int (*next)(int*, char***), int* argc, char*** argv) {
  return initialised(next(argc, argv));
}

int on_Init_thread(int (*next)(int*, char***, int, int*), int* argc, char*** argv, int required,
                   int* provided) {
  return initialised(next(argc, argv, required, provided));
}

}  // namespace nvio
