// The calls that the cache serves on descriptors, as the loader's table has them (contract.h).
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <new>
#include <type_traits>

#include "../nodes/other_jobs.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "hooks.h"

namespace nvio {
namespace {

thread_local bool g_writing = false;   // in a call that writes
thread_local bool g_has_read = false;  // and reads

ssize_t read_at(int fd, void* buffer, std::size_t length, off_t offset) {
  JobFile* file = Process::the().file_of(fd);
  if (offset < 0) {
    errno = EINVAL;
    return -1;
  }
  if (file == nullptr) return real().pread(fd, buffer, length, offset);
  if (Process::the().access_of(fd) == O_WRONLY) return as_posix(EBADF);
  const auto at = static_cast<std::uint64_t>(offset);
  if (!g_writing && !file->expects_windows()) return file->read(at, buffer, length);
  g_has_read = true;
  return file->read_window(at, buffer, length);
}

ssize_t write_at(int fd, const void* buffer, std::size_t length, off_t offset) {
  JobFile* file = Process::the().file_of(fd);
  if (offset < 0 || length > static_cast<std::size_t>(INT64_MAX - offset)) {
    errno = EINVAL;
    return -1;
  }
  if (file == nullptr) return real().pwrite(fd, buffer, length, offset);
  if (Process::the().access_of(fd) == O_RDONLY) return as_posix(EBADF);
  const auto at = static_cast<std::uint64_t>(offset);
  const bool window = (g_writing && g_has_read) || file->expects_windows();
  return window ? file->write_window(at, buffer, length) : file->write(at, buffer, length);
}

off_t size_of(int fd) {
  JobFile* file = Process::the().file_of(fd);
  if (file != nullptr) return static_cast<off_t>(file->size());
  struct stat status {};
  return real().fstat(fd, &status) == 0 ? status.st_size : -1;
}

int truncate(int fd, off_t length) {
  JobFile* file = Process::the().file_of(fd);
  if (file == nullptr) return real().ftruncate(fd, length);
  if (length < 0 || Process::the().access_of(fd) == O_RDONLY) return as_posix(EINVAL);
  return as_posix(file->truncate(static_cast<std::uint64_t>(length)));
}

int sync(int fd) {
  JobFile* file = Process::the().file_of(fd);
  return file == nullptr ? real().fsync(fd) : as_posix(file->sync());
}

// Before what comes that cannot be served, by act(file); the child of a vfork has another way.
template <typename Act>
int make_way(int fd, Act&& act) {
  Process& process = Process::the();
  JobFile* file = process.file_of(fd);
  if (file == nullptr) return 0;
  return as_posix(process.is_borrowed() ? process.step_aside_for_parent(fd, *file) : act(*file));
}

int file_number(int fd) {
  JobFile* file = Process::the().file_of(fd);
  return file == nullptr || file->is_left() ? -1 : static_cast<int>(file->cached().index());
}

int opened(int fd) {
  Process::the().opened(fd);
  return 0;
}

int closing(int fd) { return Process::the().closing(fd); }

void duplicated(int from, int to) { Process::the().duplicated(from, to); }

int stand_alone(int fd) {
  return make_way(fd, [](JobFile& file) { return file.cached().stand_alone(); });
}

void expect_locks(int fd) {
  if (JobFile* file = Process::the().file_of(fd)) file->cached().expect_locks();
}

int step_aside(int fd) {
  return make_way(fd, [](JobFile& file) { return file.step_aside(); });
}

int step_aside_path(const char* path) {
  Process& process = Process::the();
  process.used_by_name(path);
  Job* job = process.joined();
  if (job == nullptr) return as_posix(step_aside_elsewhere(process.settings(), path));
  return as_posix(process.is_borrowed() ? process.step_aside_for_parent(path)
                                        : job->step_aside(path));
}

int correct_size(struct stat* status) {
  Process& process = Process::the();
  process.used(*status);
  Job* job = process.joined();
  if (job == nullptr) {
    write_back_elsewhere(process.settings(), status);
  } else if (process.is_borrowed()) {
    job->session().correct_size(status);  // what this node knows: nothing may be opened here
  } else {
    job->correct_size(status);
  }
  return 0;
}

// A hook as the program may call it: it hears of no exception, but that memory is lacking.
template <auto hook>
struct Told;
template <typename Result, typename... Arguments, Result (*hook)(Arguments...)>
struct Told<hook> {
  static Result call(Arguments... arguments) {
    try {
      return hook(arguments...);
    } catch (const std::bad_alloc&) {
      if constexpr (!std::is_void_v<Result>) return as_posix(ENOMEM);
    }
  }
};

constexpr PosixHooks kHooks{
    Told<read_at>::call,
    Told<write_at>::call,
    Told<size_of>::call,
    Told<truncate>::call,
    Told<sync>::call,
    Told<opened>::call,
    Told<closing>::call,
    Told<duplicated>::call,
    Told<stand_alone>::call,
    Told<expect_locks>::call,
    Told<step_aside>::call,
    Told<step_aside_path>::call,
    Told<correct_size>::call,
    nullptr,
    nullptr,
    Told<file_number>::call,
    true,
};

}  // namespace

void begin_writing_call() { g_writing = true; }
void end_call() { g_writing = g_has_read = false; }

const PosixHooks& Process::hooks() const { return kHooks; }

}  // namespace nvio
