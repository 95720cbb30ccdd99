#include "scale.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include "../nodes/job.h"
#include "../nodes/placement.h"
#include "../settings/launcher.h"
#include "folder.h"
#include "harness.h"

namespace nvio::bench {
namespace {

constexpr std::size_t kPiece = 4 << 10;
constexpr const char* kPhases[] = {"open", "sync", "close"};
constexpr std::size_t kPhaseCount = std::size(kPhases);

// What the ranks tell their parent.
struct Told {
  double lost[2];  // seconds till the rank's error: a stopped manager, a killed one
  int errors[2];
};

struct Kind {
  unsigned nodes = 1;
  Connections connections = Connections::direct;
  bool operator<(const Kind& other) const {
    return connections != other.connections ? connections < other.connections : nodes < other.nodes;
  }
};

const char* name_of(Connections connections) {
  return connections == Connections::relayed ? "relayed" : "direct";
}

Settings settings_of(const Folder& folder, const Kind& kind, unsigned node) {
  Settings settings;
  settings.store = folder.path() + "/store";
  settings.session = "scale";
  settings.capacity = 4 << 20;
  settings.nodes = kind.nodes;
  settings.node = node;
  settings.connections = kind.connections;
  settings.silence = kLeastSilence;
  settings.file.admit = Admit::always;
  settings.quiet = true;
  return settings;
}

pid_t manager_of(const Folder& folder, const Kind& kind, unsigned node) {
  pid_t process = 0;
  std::ifstream(store_folder(settings_of(folder, kind, node), node) + "/manager.lock") >> process;
  return process;
}

// What a job's managers hold while all its ranks are connected.
struct Held {
  std::size_t connections = 0, most_connections = 0;
  std::size_t kib = 0, most_kib = 0;  // of memory of their own, without the store
};

Held look(const Folder& folder, const Kind& kind) {
  Held held;
  for (unsigned node = 0; node < kind.nodes && kind.nodes > 1; ++node) {
    const std::string process = "/proc/" + std::to_string(manager_of(folder, kind, node));
    std::size_t sockets = 0;
    for (const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
      std::error_code gone;
      const std::string what = std::filesystem::read_symlink(entry.path(), gone).string();
      if (what.starts_with("socket:")) ++sockets;
    }
    --sockets;  // it listens at one
    std::size_t kib = 0;
    std::ifstream status(process + "/status");
    for (std::string word; status >> word;) {
      if (word == "RssAnon:") status >> kib;
    }
    held.connections += sockets;
    held.most_connections = std::max(held.most_connections, sockets);
    held.kib += kib;
    held.most_kib = std::max(held.most_kib, kib);
  }
  return held;
}

class Rank {
 public:
  Rank(const Folder& folder, const Kind& kind, unsigned number, unsigned ranks,
       SharedMemory& memory)
      : folder_(folder), kind_(kind), number_(number), memory_(memory) {
    settings_ = settings_of(folder, kind, number * kind.nodes / ranks);
    std::string why;
    job_ = Job::join(settings_, why);
    if (job_ == nullptr) throw std::runtime_error(why);
  }

  // Each rank writes a piece of a MiB of its own, which mostly is another node's.
  void round(unsigned number) {
    const std::string path = folder_.path() + "/file" + std::to_string(number);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    wait();
    JobFile* const file = job_->acquire(fd, path, settings_.file);
    wait();
    ::close(fd);
    if (file == nullptr) throw std::runtime_error("the file is not cached");
    write(*file, number_);
    wait();
    must(file->sync() == 0);
    wait();
    wait();
    must(job_->release(file) == 0);
    wait();
  }

  // A piece of each node's: from here on there are all connections that there can be.
  void touch(bool lost) {
    const std::string path = folder_.path() + "/touched";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    JobFile* const file = job_->acquire(fd, path, settings_.file);
    ::close(fd);
    wait();
    for (unsigned group = 0; group < kind_.nodes; ++group) write(*file, group);
    wait();
    wait();  // the parent has looked
    if (lost && number_ == 0 && kind_.nodes >= 4) lose(*file);
    wait();
    job_->release(file);
  }

 private:
  void wait() { memory_.wait(); }
  static void must(bool done) {
    if (!done) throw std::runtime_error(std::strerror(errno));
  }
  void write(JobFile& file, std::uint64_t group) {
    must(file.write(group * kGroupSize + std::uint64_t{number_} * 64, piece_.data(), kPiece) ==
         static_cast<ssize_t>(kPiece));
  }
  // A manager that says nothing, and one that is gone: how long till the error.
  void lose(JobFile& file) {
    const std::uint32_t home = home_of(file.entry().inode, kind_.nodes);
    std::array<unsigned, 2> victims{};
    for (unsigned node = 1, i = 0; i < 2; ++node) {
      if (node != home) victims[i++] = node;
    }
    Told& told = *static_cast<Told*>(memory_.data());
    for (const unsigned i : {0U, 1U}) {
      const pid_t manager = manager_of(folder_, kind_, victims[i]);
      kill(manager, i == 0 ? SIGSTOP : SIGKILL);
      const double begin = now();
      const ssize_t done = file.write(victims[i] * kGroupSize, piece_.data(), kPiece);
      told.errors[i] = done < 0 ? errno : 0;
      told.lost[i] = now() - begin;
      kill(manager, i == 0 ? SIGCONT : SIGKILL);
    }
  }

  const Folder& folder_;
  Kind kind_;
  unsigned number_;
  SharedMemory& memory_;
  Settings settings_;
  std::unique_ptr<Job> job_;
  std::vector<char> piece_ = std::vector<char>(kPiece, 'p');
};

struct Found {
  Held held;
  double first_open = 0, touched = 0;
  std::array<double, kPhaseCount> medians{};
  Told told;
};

double median(std::vector<double> values) { return median_interval(std::move(values)).middle; }

Found run_job(const Kind& kind, const ScaleOptions& options, bool lost) {
  const Folder folder;
  SharedMemory memory(sizeof(Told), options.ranks);
  const std::vector<pid_t> ranks = start_processes(options.ranks, [&](unsigned number) {
    Rank rank(folder, kind, number, options.ranks, memory);
    for (unsigned round = 0; round <= options.rounds; ++round) rank.round(round);
    rank.touch(lost);
  });
  const auto timed = [&memory] {
    memory.wait();
    const double begin = now();
    memory.wait();
    return now() - begin;
  };
  std::array<std::vector<double>, kPhaseCount> all;
  Found found;
  for (unsigned round = 0; round <= options.rounds; ++round) {
    for (std::size_t phase = 0; phase < kPhaseCount; ++phase) {
      const double took = timed();
      if (round > 0) {
        all[phase].push_back(took);
      } else if (phase == 0) {
        found.first_open = took;
      }
    }
  }
  found.touched = timed();
  found.held = look(folder, kind);
  memory.wait();
  memory.wait();
  const bool good = wait_for(ranks);
  for (std::size_t phase = 0; phase < kPhaseCount; ++phase) {
    found.medians[phase] = median(all[phase]);
  }
  found.told = *static_cast<const Told*>(memory.data());
  if (!good && !lost) throw std::runtime_error("a rank failed");
  return found;
}

// The exponent b of y = a x^b, by least squares of the logarithms.
double exponent(const std::vector<std::pair<double, double>>& points) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const auto& [x, y] : points) {
    if (y <= 0) continue;
    const double lx = std::log(x);
    const double ly = std::log(y);
    ++n, sx += lx, sy += ly, sxx += lx * lx, sxy += lx * ly;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

void print_fit(const char* name, const std::map<Kind, std::vector<Found>>& jobs, Connections way,
               double (*value)(const Found&), const char* end) {
  std::vector<std::pair<double, double>> points;
  for (const auto& [kind, all] : jobs) {
    if (kind.connections != way || kind.nodes < 4) continue;
    std::vector<double> values;
    for (const Found& one : all) values.push_back(value(one));
    points.emplace_back(kind.nodes, median(values));
  }
  if (points.size() < 2) return;
  std::printf("\"%s\": %.3f%s", name, exponent(points), end);
}

void print_job(const Kind& kind, const Found& job, const ScaleOptions& options) {
  std::printf(
      "{\"connections\": \"%s\", \"nodes\": %u, \"ranks\": %u, \"sockets\": %zu, "
      "\"most_sockets\": %zu, \"kib\": %zu, \"most_kib\": %zu, \"first_open_s\": %.4f, "
      "\"touch_s\": %.4f",
      name_of(kind.connections), kind.nodes, options.ranks, job.held.connections,
      job.held.most_connections, job.held.kib, job.held.most_kib, job.first_open, job.touched);
  for (std::size_t phase = 0; phase < kPhaseCount; ++phase) {
    std::printf(", \"%s_s\": %.5f", kPhases[phase], job.medians[phase]);
  }
  if (job.told.errors[0] != 0 || job.told.errors[1] != 0) {
    std::printf(
        ", \"lost\": {\"silence_s\": %u, \"stopped_s\": %.3f, \"stopped_error\": %d, "
        "\"killed_s\": %.3f, \"killed_error\": %d}",
        kLeastSilence, job.told.lost[0], job.told.errors[0], job.told.lost[1], job.told.errors[1]);
  }
  std::printf("}");
}

}  // namespace

int scale(const ScaleOptions& options) {
  std::vector<Kind> kinds;
  for (const unsigned nodes : options.nodes) {
    if (options.direct) kinds.push_back({nodes, Connections::direct});
    if (options.relayed && nodes > 1) kinds.push_back({nodes, Connections::relayed});
  }
  std::map<Kind, std::vector<Found>> jobs;
  std::printf("{\"ranks\": %u, \"rounds\": %u, \"jobs\": [", options.ranks, options.rounds);
  const char* between = "\n  ";
  for (unsigned repeat = 0; repeat < options.repeats; ++repeat) {
    // In an order that is turned round each time, so that all meet the same machine.
    std::vector<Kind> order = kinds;
    if (repeat % 2 == 1) std::reverse(order.begin(), order.end());
    for (const Kind& kind : order) {
      const bool lost = options.lost && repeat + 1 == options.repeats;
      jobs[kind].push_back(run_job(kind, options, lost));
      std::printf("%s", between);
      print_job(kind, jobs[kind].back(), options);
      std::fflush(stdout);
      between = ",\n  ";
    }
  }
  std::printf("],\n \"exponents\": {");
  for (const Connections way : {Connections::direct, Connections::relayed}) {
    if (way == Connections::direct ? !options.direct : !options.relayed) continue;
    std::printf("%s\"%s\": {", way == Connections::relayed && options.direct ? ", " : "",
                name_of(way));
    print_fit(
        "most_sockets", jobs, way,
        [](const Found& one) { return static_cast<double>(one.held.most_connections); }, ", ");
    print_fit(
        "most_kib", jobs, way,
        [](const Found& one) { return static_cast<double>(one.held.most_kib); }, ", ");
    print_fit(
        "open", jobs, way, [](const Found& one) { return one.medians[0]; }, ", ");
    print_fit(
        "sync", jobs, way, [](const Found& one) { return one.medians[1]; }, ", ");
    print_fit(
        "close", jobs, way, [](const Found& one) { return one.medians[2]; }, "");
    std::printf("}");
  }
  std::printf("}}\n");
  return 0;
}

}  // namespace nvio::bench
