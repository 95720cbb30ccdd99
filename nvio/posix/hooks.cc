#include "hooks.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "real.h"
#include "termination.h"

namespace nvio {
namespace {

thread_local bool g_remember = false;
thread_local std::vector<int> g_opened;

// A table with an entry a descriptor, never freed: the process's one.
template <typename Entry>
Entry* zeroed() {
  return static_cast<Entry*>(std::calloc(kMaxDescriptors, sizeof(Entry)));
}

ssize_t read_at(int fd, void* buffer, std::size_t length, off_t offset) {
  CachedFile* file = Process::the().file_of(fd);
  if (offset < 0) {
    errno = EINVAL;
    return -1;
  }
  if (file == nullptr) return real().pread(fd, buffer, length, offset);
  return file->read(static_cast<std::uint64_t>(offset), buffer, length);
}

ssize_t write_at(int fd, const void* buffer, std::size_t length, off_t offset) {
  CachedFile* file = Process::the().file_of(fd);
  if (offset < 0 || length > static_cast<std::size_t>(INT64_MAX - offset)) {
    errno = EINVAL;
    return -1;
  }
  if (file == nullptr) return real().pwrite(fd, buffer, length, offset);
  return file->write(static_cast<std::uint64_t>(offset), buffer, length);
}

off_t size_of(int fd) {
  CachedFile* file = Process::the().file_of(fd);
  if (file != nullptr) return static_cast<off_t>(file->size());
  struct stat status {};
  return real().fstat(fd, &status) == 0 ? status.st_size : -1;
}

int as_posix(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

int truncate(int fd, off_t length) {
  CachedFile* file = Process::the().file_of(fd);
  if (file == nullptr) return real().ftruncate(fd, length);
  if (length < 0) return as_posix(EINVAL);
  return as_posix(file->truncate(static_cast<std::uint64_t>(length)));
}

int sync(int fd) {
  CachedFile* file = Process::the().file_of(fd);
  return file == nullptr ? real().fsync(fd) : as_posix(file->sync());
}

void step_aside(int fd) {
  if (CachedFile* file = Process::the().file_of(fd); file != nullptr) file->step_aside();
}

constexpr PosixHooks kHooks{
    read_at,
    write_at,
    size_of,
    truncate,
    sync,
    [](int fd) { Process::the().opened(fd); },
    [](int fd) { return Process::the().closing(fd); },
    [](int from, int to) { Process::the().duplicated(from, to); },
    step_aside,
    [](const char* path) {
      if (Session* session = Process::the().joined(); session != nullptr) session->step_aside(path);
    },
    [](const char* path, const char* to) {
      if (Session* session = Process::the().joined(); session != nullptr) {
        session->unlinking(path, to);
      }
    },
    [](struct stat* status) {
      if (Session* session = Process::the().joined(); session != nullptr) {
        session->correct_size(status);
      }
    },
};

}  // namespace

Process& Process::the() {
  static Process* process = new Process;
  return *process;
}

Process::Process()
    : settings_(read_settings_of_process()),
      files_(zeroed<std::atomic<CachedFile*>>()),
      left_open_(zeroed<std::atomic<bool>>()) {
  for (const auto& complaint : settings_.complaints) {
    if (!settings_.quiet) std::fprintf(stderr, "nvio: %s\n", complaint.c_str());
  }
}

void Process::attach(const FromLoader& loader) {
  set_real(loader.real);
  tracked_ = loader.tracked;
}

const PosixHooks& Process::hooks() const { return kHooks; }

Session* Process::session() {
  const std::lock_guard guard(mutex_);
  if (session_ == nullptr && !refused_) {
    std::string why;
    session_ = Session::join(settings_, why);
    if (session_ == nullptr) {
      refused_ = true;
      if (!settings_.quiet) {
        std::fprintf(stderr, "nvio: %s; the program's I/O goes on without the cache\n",
                     why.c_str());
      }
    }
    joined_.store(session_.get(), std::memory_order_release);
    if (session_ != nullptr && settings_.flush_at_sigterm) {
      flush_at_termination([] { the().flush_for_good(); });
    }
  }
  return session_.get();
}

void Process::leave() {
  const std::lock_guard guard(mutex_);
  if (served_.load() != 0) return;
  joined_.store(nullptr);
  session_.reset();
  refused_ = true;
}

// Under the lock: the session must not end while it is written back.
void Process::flush_for_good() {
  const std::lock_guard guard(mutex_);
  if (session_ != nullptr) session_->flush_for_good();
}

void Process::remember_opened() {
  g_remember = true;
  g_opened.clear();
}

void Process::forget_opened() { g_remember = false; }

void Process::forget_descriptors(const std::vector<int>& descriptors, const CachedFile* file) {
  for (const int fd : descriptors) {
    if (file_of(fd) != file) continue;
    closing(fd);
    left_open_[fd].store(true);
  }
}

CachedFile* Process::track_opened(const std::string& path, const FileSettings& settings,
                                  std::vector<int>& descriptors) {
  g_remember = false;
  Session* session = this->session();
  struct stat wanted {};
  if (session == nullptr || real().stat(path.c_str(), &wanted) != 0) return nullptr;
  CachedFile* found = nullptr;
  for (const int fd : g_opened) {
    struct stat status {};
    if (real().fstat(fd, &status) != 0 || status.st_ino != wanted.st_ino ||
        status.st_dev != wanted.st_dev) {
      continue;
    }
    if (file_of(fd) == nullptr) {
      CachedFile* file = session->acquire(fd, path, settings);
      if (file == nullptr) continue;
      track(fd, file);
    }
    descriptors.push_back(fd);
    if (found == nullptr) found = session->acquire_if_open(fd, status);
  }
  if (found != nullptr) track_earlier(wanted, found);
  return found;
}

// Descriptors that the program opened before any rank cached the file: what is written through
// them must not go past the cache either.
void Process::track_earlier(const struct stat& wanted, const CachedFile* file) {
  DIR* listing = opendir("/proc/self/fd");
  if (listing == nullptr) return;
  std::vector<int> descriptors;
  while (const dirent* entry = readdir(listing)) descriptors.push_back(std::atoi(entry->d_name));
  closedir(listing);
  for (const int fd : descriptors) {
    struct stat status {};
    if (fd >= kMaxDescriptors || file_of(fd) != nullptr || file->owns(fd) ||
        left_open_[fd].load() || real().fstat(fd, &status) != 0 || status.st_ino != wanted.st_ino ||
        status.st_dev != wanted.st_dev) {
      continue;
    }
    if (CachedFile* same = session_->acquire_if_open(fd, status); same != nullptr) track(fd, same);
  }
}

void Process::track(int fd, CachedFile* file) {
  if (files_[fd].exchange(file) == nullptr) served_.fetch_add(1);
  __atomic_store_n(&tracked_[fd], std::uint8_t{1}, __ATOMIC_RELEASE);
}

void Process::opened(int fd) {
  if (fd >= kMaxDescriptors) return;
  left_open_[fd].store(false, std::memory_order_relaxed);
  if (g_remember) g_opened.push_back(fd);
  Session* session = joined();
  struct stat status {};
  if (session == nullptr || real().fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (CachedFile* file = session->acquire_if_open(fd, status); file != nullptr) track(fd, file);
}

int Process::closing(int fd) {
  CachedFile* file = files_[fd].exchange(nullptr);
  if (file == nullptr) return 0;
  served_.fetch_sub(1);
  __atomic_store_n(&tracked_[fd], std::uint8_t{0}, __ATOMIC_RELEASE);
  return as_posix(joined()->release(file));
}

void Process::duplicated(int from, int to) {
  CachedFile* file = file_of(from);
  struct stat status {};
  if (file == nullptr || to >= kMaxDescriptors || real().fstat(to, &status) != 0) return;
  if (CachedFile* copy = joined()->acquire_if_open(to, status); copy != nullptr) track(to, copy);
}

CachedFile* Process::file_of(int fd) const { return files_[fd].load(std::memory_order_acquire); }

}  // namespace nvio
