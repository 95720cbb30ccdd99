#include "recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "../process/hooks.h"
#include "../system/host_name.h"
#include "../system/real.h"
#include "../system/remembered.h"
#include "mount_source.h"

namespace nvio {
namespace {

thread_local Remembered g_opened;

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Notes a transfer and passes it on; errno stays the call's own.
template <typename Call>
auto noted(TraceKind kind, int fd, std::uint64_t offset, std::uint64_t length, Call&& call) {
  Recorder& recorder = *Recorder::the();
  const std::uint64_t start = recorder.now();
  const auto result = call();
  const int error = errno;
  const std::uint64_t noted_length =
      kind == TraceKind::resize ? length : std::min(length, kMostTransfer);
  if (result >= 0) recorder.note(kind, recorder.file_of(fd), start, offset, noted_length);
  errno = error;
  return result;
}

int note_aside(int fd) {
  Recorder& recorder = *Recorder::the();
  recorder.note(TraceKind::aside, recorder.file_of(fd), recorder.now());
  return 0;
}

constexpr PosixHooks kHooks{
    [](int fd, void* buffer, std::size_t length, off_t offset) {
      return noted(TraceKind::read, fd, static_cast<std::uint64_t>(offset), length,
                   [=] { return real().pread(fd, buffer, length, offset); });
    },
    [](int fd, const void* buffer, std::size_t length, off_t offset) {
      return noted(TraceKind::write, fd, static_cast<std::uint64_t>(offset), length,
                   [=] { return real().pwrite(fd, buffer, length, offset); });
    },
    [](int fd) -> off_t {
      struct stat status {};
      return real().fstat(fd, &status) == 0 ? status.st_size : -1;
    },
    [](int fd, off_t length) {
      return noted(TraceKind::resize, fd, 0, static_cast<std::uint64_t>(length),
                   [=] { return real().ftruncate(fd, length); });
    },
    [](int fd) { return noted(TraceKind::flush, fd, 0, 0, [=] { return real().fsync(fd); }); },
    [](int fd) {
      Recorder::the()->opened(fd);
      return 0;
    },
    [](int fd) {
      Recorder::the()->closing(fd);
      return 0;
    },
    [](int from, int to) { Recorder::the()->duplicated(from, to); },
    [](int) { return 0; },
    [](int) {},
    note_aside,
    [](const char*) { return 0; },
    [](struct stat*) { return 0; },
    [](int fd, const iovec* vectors, int count, off_t offset) {
      return noted(TraceKind::read, fd, static_cast<std::uint64_t>(offset),
                   total_of(vectors, count),
                   [=] { return real().preadv(fd, vectors, count, offset); });
    },
    [](int fd, const iovec* vectors, int count, off_t offset) {
      return noted(TraceKind::write, fd, static_cast<std::uint64_t>(offset),
                   total_of(vectors, count),
                   [=] { return real().pwritev(fd, vectors, count, offset); });
    },
    [](int fd) -> int { return Recorder::the()->file_of(fd); },
    false,
};

}  // namespace

// A signal handler that ends the program meanwhile finds its thread inside nvio (leave_at_exit),
// and does not wait for what the thread itself has.
class Recorder::Holding {
 public:
  explicit Holding(std::mutex& mutex) : guard_(mutex) {}

 private:
  Inside here_;
  std::lock_guard<std::mutex> guard_;
};

Recorder* Recorder::the() {
  static Recorder* recorder = []() -> Recorder* {
    const char* folder = std::getenv("NVIO_RECORD");
    return folder != nullptr && *folder != '\0' ? new Recorder(folder) : nullptr;
  }();
  return recorder;
}

Recorder::Recorder(const std::string& folder)
    : start_(monotonic_ns()),
      writer_(folder + "/" + host_name() + "-" + std::to_string(getpid()) + ".trace", start_,
              static_cast<std::uint32_t>(getpid()), host_name()),
      process_(getpid()),
      files_(static_cast<std::atomic<std::uint16_t>*>(
          std::calloc(kMaxDescriptors, sizeof(std::atomic<std::uint16_t>)))) {}

const PosixHooks& Recorder::hooks() const { return kHooks; }

std::uint64_t Recorder::now() const { return monotonic_ns() - start_; }

// A child's calls are not this rank's, and the child of a vfork must not touch what is its
// parent's.
bool Recorder::is_borrowed() const { return getpid() != process_; }

void Recorder::note(TraceKind kind, std::uint16_t file, std::uint64_t start, std::uint64_t offset,
                    std::uint64_t length, std::uint32_t ranks) {
  note({kind, 0, file, ranks, offset, length, start, now() - start});
}

void Recorder::note(const TraceCall& call) {
  if (is_borrowed()) return;
  const Holding guard(mutex_);
  if (!finished_) writer_.add(call);
}

void Recorder::remember_opened() { g_opened.begin(); }

Recorder::Tracked Recorder::track_opened(const std::string& path) {
  const std::vector<int>& opened = g_opened.end();
  struct stat wanted {};
  Tracked tracked;
  if (real().stat(path.c_str(), &wanted) != 0) return tracked;
  for (const int fd : opened) {
    struct stat status {};
    if (fd >= kMaxDescriptors || real().fstat(fd, &status) != 0 || status.st_ino != wanted.st_ino ||
        status.st_dev != wanted.st_dev) {
      continue;
    }
    tracked = {number_of(fd, status, path), fd};
    if (tracked.number < 0) break;
    files_[fd].store(static_cast<std::uint16_t>(tracked.number));
    __atomic_store_n(&tracked_[fd], kServed, __ATOMIC_RELEASE);
  }
  return tracked;
}

// Programs set one view after the other that differ in where they begin, or a few in turns.
int Recorder::number_of(const View& view) {
  constexpr std::size_t kRemembered = 32;
  if (view.runs().size() > kMostTracedRuns || view.displacement() > kMostOffset) return -1;
  const Holding guard(mutex_);
  const auto known =
      std::ranges::find_if(views_, [&](const auto& one) { return one.second.has_tiles_of(view); });
  if (known != views_.end() && known->second.displacement() == view.displacement()) {
    known->second = view;  // whose tiles need not be compared the next time
    return static_cast<int>(known->first);
  }
  const std::uint32_t number = next_view_++;
  const bool is_new = known == views_.end();
  writer_.add_view(view, is_new ? number : known->first, is_new);
  if (!is_new) views_.erase(known);
  views_.emplace_front(number, view);
  if (views_.size() > kRemembered) views_.pop_back();
  return static_cast<int>(number);
}

int Recorder::number_of(int fd, const struct stat& status, const std::string& path) {
  const Holding guard(mutex_);
  for (const TraceFile& file : known_) {
    if (file.device == status.st_dev && file.inode == status.st_ino) {
      return static_cast<int>(file.number);
    }
  }
  if (known_.size() > UINT16_MAX) return -1;
  TraceFile file{};
  file.device = status.st_dev;
  file.inode = status.st_ino;
  file.size = static_cast<std::uint64_t>(status.st_size);
  file.number = static_cast<std::uint32_t>(known_.size());
  known_.push_back(file);
  writer_.add_file(file, path, mount_source(fd));
  return static_cast<int>(file.number);
}

void Recorder::finish() {
  note(TraceKind::end, 0, now());
  if (is_borrowed()) return;
  const Holding guard(mutex_);
  finished_ = true;
  writer_.flush();
}

void Recorder::opened(int fd) {
  if (g_opened.is_under_way() && !is_borrowed()) g_opened.add(fd);
}

void Recorder::closing(int fd) {
  if (!is_borrowed()) __atomic_store_n(&tracked_[fd], std::uint8_t{0}, __ATOMIC_RELEASE);
}

void Recorder::duplicated(int from, int to) {
  if (to >= kMaxDescriptors || is_borrowed()) return;
  files_[to].store(file_of(from));
  __atomic_store_n(&tracked_[to], kServed, __ATOMIC_RELEASE);
}

}  // namespace nvio
