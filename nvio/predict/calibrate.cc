#include "calibrate.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "../cache/cached_file.h"
#include "../posix/real.h"
#include "../record/mount_source.h"
#include "workers.h"

namespace nvio {
namespace {

constexpr std::uint64_t kFileBytes = 64 << 20;
constexpr std::uint64_t kSizes[] = {4 << 10, 64 << 10, 1 << 20};
constexpr std::uint64_t kCachedSizes[] = {4 << 10, 64 << 10};
constexpr std::uint64_t kDirectFrom = 64 << 10;  // bytes: the cache fetches past the page cache
constexpr int kRounds = 3;
constexpr double kSlice = 0.25;  // seconds that one measurement takes
constexpr double kCachedSlice = 0.05;
constexpr std::uint64_t kAlign = 4096;

volatile std::sig_atomic_t g_stopped = 0;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Range range_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

struct Stopped {};

struct Failed {
  std::string why;
};

[[noreturn]] void fail(const std::string& what) {
  throw Failed{what + ": " + std::strerror(errno)};
}

// A file that goes away with this object.
struct Scratch {
  explicit Scratch(std::string name) : path(std::move(name)) {}
  ~Scratch() { ::unlink(path.c_str()); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path;
};

struct Aligned {
  explicit Aligned(std::uint64_t bytes) : data(std::aligned_alloc(kAlign, bytes)) {
    std::memset(data, 'x', bytes);
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  void* data;
};

// One worker's share of the file's pieces: none twice, at random or as they come.
std::vector<std::uint64_t> places(std::uint64_t bytes, std::uint32_t worker, std::uint32_t workers,
                                  bool at_random) {
  std::vector<std::uint64_t> all(kFileBytes / bytes);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  std::mt19937_64 random(17);  // the same for all workers: their shares are disjoint
  if (at_random) std::shuffle(all.begin(), all.end(), random);
  std::vector<std::uint64_t> mine;
  for (std::size_t i = worker; i < all.size(); i += workers) mine.push_back(all[i] * bytes);
  return mine;
}

// Makes calls until the time is over or there are no more places.
template <typename Call>
std::uint64_t until_over(const std::vector<std::uint64_t>& at, double slice, Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t calls = 0;
  for (const std::uint64_t offset : at) {
    if (!call(offset)) return 0;
    ++calls;
    if (seconds_since(start) > slice) break;
  }
  return calls;
}

class Calibrator {
 public:
  Calibrator(const CalibrateOptions& options, const Progress& progress)
      : options_(options),
        progress_(progress),
        name_("nvio-calibrate-" + std::to_string(getpid())) {
    clients_ = {1};
    if (options.clients > 1) clients_.push_back(options.clients);
    steps_ = static_cast<double>(3 + clients_.size() *
                                         (2 * std::size(kSizes) + std::size(kCachedSizes)));
  }

  Calibration run() {
    Calibration found;
    struct stat status {};
    if (stat(options_.folder.c_str(), &status) != 0) fail("cannot look at " + options_.folder);
    if (stat(options_.store.c_str(), &status) != 0) fail("cannot look at " + options_.store);
    found.folder = absolute_path((options_.folder + "/x").c_str());
    found.folder.resize(found.folder.size() - 2);
    found.store = options_.store;
    files(found);
    const Scratch file(options_.folder + "/." + name_);
    make_file(file.path);
    for (const std::uint32_t clients : clients_) {
      for (const std::uint64_t bytes : kSizes) {
        step("reading " + std::to_string(bytes >> 10) + " KiB");
        add(found, Way::read, bytes, clients, [&] { return reading(file.path, bytes, clients); });
      }
      for (const std::uint64_t bytes : kSizes) {
        step("writing " + std::to_string(bytes >> 10) + " KiB");
        add(found, Way::write, bytes, clients, [&] { return writing(bytes, clients); });
      }
    }
    in_store(found);
    progress_(1, "done");
    return found;
  }

 private:
  void step(const std::string& what) {
    if (g_stopped != 0) throw Stopped{};
    progress_(done_++ / steps_, what);
  }

  template <typename Measure>
  void add(Calibration& found, Way way, std::uint64_t bytes, std::uint32_t clients,
           Measure&& measure) {
    std::vector<double> seconds;
    for (int i = 0; i < kRounds; ++i) {
      if (g_stopped != 0) throw Stopped{};
      seconds.push_back(measure());
      if (seconds.back() < 0) {
        throw Failed{std::string("a process that measured calls (") +
                     kWayNames[static_cast<std::size_t>(way)] + ") failed in " + options_.folder +
                     " or " + options_.store + ": is there room for 64 MiB?"};
      }
    }
    found.points.push_back({way, bytes, clients, range_of(seconds)});
  }

  // Opens and closes, syncs, one client.
  void files(Calibration& found) {
    step("opening and closing");
    std::vector<double> open;
    std::vector<double> close;
    std::vector<double> sync;
    const Scratch file(options_.folder + "/." + name_ + ".open");
    constexpr int kFiles = 8;
    const Aligned bytes(kAlign);
    for (int i = 0; i < kFiles; ++i) {
      auto start = std::chrono::steady_clock::now();
      const int fd = ::open(file.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      open.push_back(seconds_since(start));
      if (fd < 0) fail("cannot make a file in " + options_.folder);
      struct stat status {};
      if (fstat(fd, &status) == 0) found.file_system = mount_source(status.st_dev);
      bool good = ::pwrite(fd, bytes.data, kAlign, 0) == static_cast<ssize_t>(kAlign);
      start = std::chrono::steady_clock::now();
      good = good && ::fsync(fd) == 0;
      sync.push_back(seconds_since(start));
      good = good && ::pwrite(fd, bytes.data, kAlign, 0) == static_cast<ssize_t>(kAlign);
      start = std::chrono::steady_clock::now();
      good = ::close(fd) == 0 && good;
      close.push_back(seconds_since(start));
      if (!good) fail("cannot write in " + options_.folder);
    }
    found.open = range_of(open);
    found.close = range_of(close);
    found.sync = range_of(sync);
  }

  void make_file(const std::string& path) {
    step("making a file of 64 MiB");
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) fail("cannot make a file in " + options_.folder);
    const Aligned bytes(1 << 20);
    bool good = true;
    for (std::uint64_t at = 0; good && at < kFileBytes && g_stopped == 0; at += 1 << 20) {
      good = write_fully(fd, bytes.data, 1 << 20, static_cast<off_t>(at)) >= 0;
    }
    good = good && ::fsync(fd) == 0;
    good = ::close(fd) == 0 && good;
    if (!good) fail("cannot write 64 MiB in " + options_.folder);
  }

  void forget(const std::string& path) const {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      ::close(fd);
    }
    if (!options_.drop_caches) return;
    const int drop = ::open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    if (drop < 0 || ::write(drop, "1\n", 2) != 2) {
      if (drop >= 0) ::close(drop);
      fail("--drop-caches: only root can empty the page cache");
    }
    ::close(drop);
  }

  double reading(const std::string& path, std::uint64_t bytes, std::uint32_t clients) const {
    forget(path);
    return seconds_a_call(clients, [&](std::uint32_t worker, Stopwatch& watch) -> std::uint64_t {
      int fd = -1;
      if (bytes >= kDirectFrom) fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
      if (fd < 0) fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      const Aligned buffer(bytes);
      const auto mine = places(bytes, worker, clients, true);
      if (fd < 0) return 0;
      watch.begin();
      const std::uint64_t calls = until_over(mine, kSlice, [&](std::uint64_t at) {
        return read_fully(fd, buffer.data, bytes, static_cast<off_t>(at)) ==
               static_cast<ssize_t>(bytes);
      });
      watch.end();
      ::close(fd);
      return calls;
    });
  }

  // Into a new file, whose close counts: there what was kept back is written.
  double writing(std::uint64_t bytes, std::uint32_t clients) const {
    const Scratch file(options_.folder + "/." + name_ + ".new");
    const int made = ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (made < 0) fail("cannot make a file in " + options_.folder);
    ::close(made);
    return seconds_a_call(clients, [&](std::uint32_t worker, Stopwatch& watch) -> std::uint64_t {
      const int fd = ::open(file.path.c_str(), O_RDWR | O_CLOEXEC);
      const Aligned buffer(bytes);
      const auto mine = places(bytes, worker, clients, bytes < (1 << 20));
      if (fd < 0) return 0;
      watch.begin();
      const std::uint64_t calls = until_over(mine, kSlice, [&](std::uint64_t at) {
        return write_fully(fd, buffer.data, bytes, static_cast<off_t>(at)) >= 0;
      });
      const bool closed = ::close(fd) == 0;
      watch.end();
      return closed ? calls : 0;
    });
  }

  // What the cache itself takes: joining a store, and bytes that are in it.
  void in_store(Calibration& found) {
    Settings settings;
    settings.store = options_.store;
    settings.session = name_;
    settings.nodes = 1;
    settings.node = 0;
    settings.capacity = 2 * kFileBytes;
    settings.file.admit = Admit::always;
    step("joining a store");
    std::vector<double> join;
    for (int i = 0; i < kRounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      std::string why;
      if (Session::join(settings, why) == nullptr) throw Failed{why};
      join.push_back(seconds_since(start));
    }
    found.join = range_of(join);
    const Scratch file(options_.store + "/" + name_ + ".file");
    const int made = ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (made < 0 || ::ftruncate(made, kFileBytes) != 0) fail("cannot write in " + options_.store);
    ::close(made);
    for (const std::uint32_t clients : clients_) {
      for (const std::uint64_t bytes : kCachedSizes) {
        step("the store");
        for (const Way way : {Way::cached_write, Way::cached_read}) {
          add(found, way, bytes, clients,
              [&] { return cached(settings, file.path, way, bytes, clients); });
        }
      }
    }
  }

  static double cached(const Settings& settings, const std::string& path, Way way,
                       std::uint64_t bytes, std::uint32_t clients) {
    return seconds_a_call(clients, [&](std::uint32_t worker, Stopwatch& watch) -> std::uint64_t {
      std::string why;
      const auto session = Session::join(settings, why);
      const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
      CachedFile* file =
          session == nullptr || fd < 0 ? nullptr : session->acquire(fd, path, settings.file);
      if (file == nullptr) return 0;
      file->entry().deleted.store(1);  // nothing is to be written back
      const Aligned buffer(bytes);
      const auto mine = places(bytes, worker, clients, true);
      if (way == Way::cached_read) {
        for (const std::uint64_t at : mine) file->read(at, buffer.data, bytes);
      }
      watch.begin();
      const auto call = [&](std::uint64_t at) {
        const ssize_t done = way == Way::cached_read ? file->read(at, buffer.data, bytes)
                                                     : file->write(at, buffer.data, bytes);
        return done == static_cast<ssize_t>(bytes);
      };
      const std::uint64_t calls = until_over(mine, kCachedSlice, call);
      watch.end();
      session->release(file);
      ::close(fd);
      return calls;
    });
  }

  const CalibrateOptions& options_;
  const Progress& progress_;
  std::string name_;
  std::vector<std::uint32_t> clients_;
  double steps_ = 1;
  double done_ = 0;
};

}  // namespace

void stop_calibration() { g_stopped = 1; }

bool calibrate(const CalibrateOptions& options, const Progress& progress, Calibration& calibration,
               std::string& problem) {
  try {
    calibration = Calibrator(options, progress).run();
    return true;
  } catch (const Stopped&) {
    problem = "stopped; nothing was left behind";
  } catch (const Failed& failed) {
    problem = failed.why;
  }
  return false;
}

}  // namespace nvio
