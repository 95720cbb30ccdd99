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
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "../cache/cached_file.h"
#include "../system/random_ending.h"
#include "../system/real.h"
#include "grounds.h"
#include "workers.h"

namespace nvio {
namespace {

constexpr std::uint64_t kFileBytes = 64 << 20;  // at least
constexpr std::uint64_t kLongest = 1 << 20;
constexpr std::uint64_t kSizes[] = {4 << 10, 64 << 10, kLongest};
constexpr std::uint64_t kCachedSizes[] = {4 << 10, 64 << 10};
constexpr std::uint64_t kPieceSizes[] = {64, 4 << 10};
constexpr std::uint64_t kDirectFrom = 64 << 10;  // bytes: the cache fetches past the page cache
constexpr int kRounds = 5;
constexpr double kSlice = 0.1;  // seconds that one measurement takes
constexpr double kCachedSlice = 0.02;
constexpr std::uint64_t kAlign = 4096;
constexpr std::size_t kLeastPlaces = 8;

volatile std::sig_atomic_t g_stopped = 0;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Range range_of(std::vector<double> values) {
  // One in five may have met something else on the machine, at either end.
  std::sort(values.begin(), values.end());
  const std::size_t aside = values.size() / 5;
  return {values[aside], values[values.size() / 2], values[values.size() - 1 - aside]};
}

struct Stopped {};

struct Failed {
  std::string why;
};

[[noreturn]] void fail(const std::string& what) { throw Failed{failed(what)}; }

// A new file, never what somebody else has put there, that goes away with this object.
struct Scratch {
  explicit Scratch(std::string name) : path(std::move(name)) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) fail("cannot make " + path);
    ::close(fd);
  }
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

// One worker's share of the pieces of a file so long, at random or as they come; none twice, unless
// the workers are so many.
std::vector<std::uint64_t> places(std::uint64_t file_bytes, std::uint64_t bytes,
                                  std::uint32_t worker, std::uint32_t workers, bool at_random) {
  std::vector<std::uint64_t> all(file_bytes / bytes);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  std::mt19937_64 random(17);  // the same for all workers: their shares are disjoint
  if (at_random) std::shuffle(all.begin(), all.end(), random);
  const std::size_t share = std::max(kLeastPlaces, all.size() / workers);
  std::vector<std::uint64_t> mine;
  for (std::size_t i = 0; i < share; ++i) {
    mine.push_back(all[(worker + i * workers) % all.size()] * bytes);
  }
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

// What is measured again and again, in turns: what else happens on the machine meanwhile then falls
// on single measurements of everything, not on all of one thing.
struct Measurement {
  Way way;
  std::uint64_t bytes;
  std::uint32_t clients;
  std::vector<double> seconds;
};

class Calibrator {
 public:
  Calibrator(const CalibrateOptions& options, const Progress& progress)
      : options_(options),
        progress_(progress),
        name_("nvio-calibrate-" + std::to_string(getpid()) + random_ending()),
        // Of the longest calls, too, no two workers share a place.
        file_bytes_(std::max(kFileBytes, kLeastPlaces * options.clients * kLongest)) {
    std::vector<std::uint32_t> clients = {1};
    if (options.clients > 1) clients.push_back(options.clients);
    for (const std::uint32_t count : clients) {
      for (const Way way : {Way::read, Way::write, Way::fresh_read}) {
        for (const std::uint64_t bytes : kSizes) plan_.push_back({way, bytes, count, {}});
      }
      for (const Way way : {Way::cached_read, Way::cached_write}) {
        for (const std::uint64_t bytes : kCachedSizes) plan_.push_back({way, bytes, count, {}});
      }
      plan_.push_back({Way::cached_new, kBlockSize, count, {}});
      for (const Way way : {Way::piece_read, Way::piece_write}) {
        for (const std::uint64_t bytes : kPieceSizes) plan_.push_back({way, bytes, count, {}});
      }
    }
    settings_.store = options.store;
    settings_.session = name_;
    settings_.nodes = 1;
    settings_.node = 0;
    settings_.capacity = 2 * kFileBytes;
    settings_.file.admit = Admit::always;
  }

  Calibration run() {
    Calibration found;
    struct stat status {};
    if (stat(options_.folder.c_str(), &status) != 0) fail("cannot look at " + options_.folder);
    if (stat(options_.store.c_str(), &status) != 0) fail("cannot look at " + options_.store);
    found.folder = std::filesystem::canonical(options_.folder);
    found.store = std::filesystem::canonical(options_.store);
    found.file_system = file_system_of(found.folder);
    found.store_file_system = file_system_of(found.store);
    say("closing");
    files(found);
    found.join = join();
    const Scratch file(options_.folder + "/." + name_);
    say("making a file of " + mib());
    make_file(file.path);
    const Scratch in_store(options_.store + "/" + name_ + ".file");
    lengthen(in_store.path, kFileBytes);
    for (int round = 0; round < kRounds; ++round) {
      for (Measurement& one : plan_) {
        say(kWayNames[static_cast<std::size_t>(one.way)] + std::string(" ") +
            (one.bytes < 1024 ? std::to_string(one.bytes) + " bytes"
                              : std::to_string(one.bytes >> 10) + " KiB"));
        one.seconds.push_back(measure(one, file.path, in_store.path));
        ++done_;
      }
    }
    for (const Measurement& one : plan_) {
      found.points.push_back({one.way, one.bytes, one.clients, range_of(one.seconds)});
    }
    progress_(1, "done");
    return found;
  }

 private:
  std::string mib() const { return std::to_string(file_bytes_ >> 20) + " MiB"; }

  void say(const std::string& what) const {
    if (g_stopped != 0) throw Stopped{};
    progress_(static_cast<double>(done_) / static_cast<double>(plan_.size() * kRounds), what);
  }

  double measure(const Measurement& one, const std::string& file,
                 const std::string& in_store) const {
    double seconds = -1;
    switch (one.way) {
      case Way::read:
        seconds = reading(file, one.bytes, one.clients);
        break;
      case Way::write:
        seconds = writing(one.bytes, one.clients);
        break;
      case Way::fresh_read: {
        const Scratch hole(options_.folder + "/." + name_ + ".new");
        lengthen(hole.path, file_bytes_);
        seconds = reading(hole.path, one.bytes, one.clients);
        break;
      }
      default:
        seconds = cached(in_store, one);
    }
    if (seconds >= 0) return seconds;
    if (g_stopped != 0) throw Stopped{};
    throw Failed{std::string("a process that measured calls (") +
                 kWayNames[static_cast<std::size_t>(one.way)] + ") failed in " + options_.folder +
                 " or " + options_.store + ": is there room for " + mib() + "?"};
  }

  // Closes and syncs, one client.
  void files(Calibration& found) {
    std::vector<double> close;
    std::vector<double> sync;
    const Scratch file(options_.folder + "/." + name_ + ".open");
    constexpr int kFiles = 8;
    const Aligned bytes(kAlign);
    for (int i = 0; i < kFiles; ++i) {
      const int fd = ::open(file.path.c_str(), O_RDWR | O_CLOEXEC);
      if (fd < 0) fail("cannot open " + file.path);
      bool good = ::pwrite(fd, bytes.data, kAlign, 0) == static_cast<ssize_t>(kAlign);
      auto start = std::chrono::steady_clock::now();
      good = good && ::fsync(fd) == 0;
      sync.push_back(seconds_since(start));
      good = good && ::pwrite(fd, bytes.data, kAlign, 0) == static_cast<ssize_t>(kAlign);
      start = std::chrono::steady_clock::now();
      good = ::close(fd) == 0 && good;
      close.push_back(seconds_since(start));
      if (!good) fail("cannot write in " + options_.folder);
    }
    found.close = range_of(close);
    found.sync = range_of(sync);
  }

  void make_file(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) fail("cannot open " + path);
    const Aligned bytes(kLongest);
    bool good = true;
    for (std::uint64_t at = 0; good && at < file_bytes_ && g_stopped == 0; at += kLongest) {
      good = write_fully(fd, bytes.data, kLongest, static_cast<off_t>(at)) >= 0;
    }
    good = good && ::fsync(fd) == 0;
    good = ::close(fd) == 0 && good;
    if (!good) fail("cannot write " + mib() + " in " + options_.folder);
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
      const auto mine = places(file_bytes_, bytes, worker, clients, true);
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

  // Into a new file, at the rate that lasts: file systems take the first bytes at once and write
  // them later.
  double writing(std::uint64_t bytes, std::uint32_t clients) const {
    const Scratch file(options_.folder + "/." + name_ + ".new");
    lengthen(file.path, file_bytes_);
    return seconds_a_call(clients, [&](std::uint32_t worker, Stopwatch& watch) -> std::uint64_t {
      const int fd = ::open(file.path.c_str(), O_RDWR | O_CLOEXEC);
      const Aligned buffer(bytes);
      const auto mine = places(file_bytes_, bytes, worker, clients, bytes < kLongest);
      if (fd < 0) return 0;
      const auto call = [&](std::uint64_t at) {
        return write_fully(fd, buffer.data, bytes, static_cast<off_t>(at)) >= 0;
      };
      const auto middle = mine.begin() + static_cast<std::ptrdiff_t>(mine.size() / 4);
      if (until_over({mine.begin(), middle}, kSlice / 2, call) == 0) return 0;
      watch.begin();
      const std::uint64_t calls = until_over({middle, mine.end()}, 2 * kSlice, call);
      watch.end();
      return ::close(fd) == 0 ? calls : 0;
    });
  }

  static void lengthen(const std::string& path, std::uint64_t bytes) {
    if (::truncate(path.c_str(), static_cast<off_t>(bytes)) != 0) fail("cannot lengthen " + path);
  }

  Range join() const {
    std::vector<double> seconds;
    for (int i = 0; i < kRounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      std::string why;
      if (Session::join(settings_, why) == nullptr) throw Failed{why};
      seconds.push_back(seconds_since(start));
    }
    return range_of(seconds);
  }

  // What the cache itself takes, for bytes that are in the store or come to it.
  double cached(const std::string& path, const Measurement& one) const {
    return seconds_a_call(
        one.clients, [&](std::uint32_t worker, Stopwatch& watch) -> std::uint64_t {
          std::string why;
          const auto session = Session::join(settings_, why);
          const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
          CachedFile* file =
              session == nullptr || fd < 0 ? nullptr : session->acquire(fd, path, settings_.file);
          if (file == nullptr) return 0;
          file->discard();
          const std::uint64_t calls = one.way == Way::piece_read || one.way == Way::piece_write
                                          ? move_pieces(*file, one, worker, watch)
                                          : move_bytes(*file, one, worker, watch);
          session->release(file);
          ::close(fd);
          return calls;
        });
  }

  static std::uint64_t move_bytes(CachedFile& file, const Measurement& one, std::uint32_t worker,
                                  Stopwatch& watch) {
    const Aligned buffer(one.bytes);
    const auto mine = places(kFileBytes, one.bytes, worker, one.clients, true);
    if (one.way != Way::cached_new) {
      for (const std::uint64_t at : mine) file.write(at, buffer.data, one.bytes);
    }
    watch.begin();
    const std::uint64_t calls = until_over(mine, kCachedSlice, [&](std::uint64_t at) {
      const ssize_t done = one.way == Way::cached_read ? file.read(at, buffer.data, one.bytes)
                                                       : file.write(at, buffer.data, one.bytes);
      return done == static_cast<ssize_t>(one.bytes);
    });
    watch.end();
    return calls;
  }

  // Every other one of a MiB, MiB after MiB.
  static std::uint64_t move_pieces(CachedFile& file, const Measurement& one, std::uint32_t worker,
                                   Stopwatch& watch) {
    std::vector<FileRun> runs(kGroupSize / one.bytes / 2);
    const Aligned buffer(kGroupSize);
    auto* bytes = static_cast<char*>(buffer.data);
    const auto mine = places(kFileBytes, kGroupSize, worker, one.clients, false);
    const auto move = [&](std::uint64_t at, bool reads) {
      for (std::size_t i = 0; i < runs.size(); ++i) runs[i] = {at + 2 * i * one.bytes, one.bytes};
      return reads ? file.read_runs(runs, bytes) : file.write_runs(runs, bytes);
    };
    for (const std::uint64_t at : mine) move(at, false);
    watch.begin();
    const std::uint64_t calls = runs.size() * until_over(mine, kCachedSlice, [&](std::uint64_t at) {
                                  return move(at, one.way == Way::piece_read);
                                });
    watch.end();
    return calls;
  }

  const CalibrateOptions& options_;
  const Progress& progress_;
  std::string name_;
  std::uint64_t file_bytes_;
  Settings settings_;
  std::vector<Measurement> plan_;
  std::size_t done_ = 0;
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
