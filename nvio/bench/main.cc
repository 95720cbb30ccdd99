// nvio-bench: what the cache itself costs, without an MPI and without a slow file system.
//
//   nvio-bench latency      4 KiB at this node beside a copy out of memory that processes share,
//   and
//                           at another node beside a bare epoll echo, and by way of this node's
//                           manager
//   nvio-bench writes       sync against async writes under load, queued here and by managers (the
//                           paper's Fig. 2)
//   nvio-bench scale        connections, memory, open, sync and close over the nodes of a job
//
// The nodes are simulated on this machine. Prints JSON.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>

#include "../nodes/job.h"
#include "../nodes/placement.h"
#include "../settings/launcher.h"
#include "../transport/transport.h"
#include "echo_server.h"
#include "folder.h"
#include "harness.h"
#include "placed.h"
#include "scale.h"
#include "shared_file.h"

namespace nvio::bench {
namespace {

constexpr std::size_t kPiece = 4 << 10;
constexpr std::uint64_t kFileSize = 64 << 20;

struct Options {
  std::vector<unsigned> clients{1, 4};
  unsigned rounds = 30;
  unsigned operations = 2000;
  double idle_seconds = 5;
  double think_us = 20;
};

Settings two_nodes(const Folder& folder, Connections connections = Connections::direct) {
  Settings settings;
  settings.store = folder.path() + "/store";
  settings.session = "bench";
  settings.capacity = 2 * kFileSize;
  settings.nodes = 2;
  settings.node = 0;
  settings.connections = connections;
  settings.file.admit = Admit::always;
  return settings;
}

// A job's file as a client has it open, kept till the process ends.
struct Open {
  std::unique_ptr<Job> job;
  JobFile* file = nullptr;
  ~Open() {
    if (file != nullptr) job->release(file);
  }
};

Open& open_file(const Folder& folder, Connections connections = Connections::direct) {
  static std::map<Connections, Open> opened;
  Open& open = opened[connections];
  std::string why;
  {
    const Placed there(1);
    const Settings settings = two_nodes(folder, connections);
    open.job = Job::join(settings, why);
    if (open.job == nullptr) throw std::runtime_error(why);
    const std::string path = folder.path() + "/file";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    open.file = open.job->acquire(fd, path, settings.file);
    ::close(fd);
    if (open.file == nullptr) throw std::runtime_error("the file is not cached");
    // Every byte is cached at its owner, whose manager is started here where it is missing.
    const std::vector<char> group(kGroupSize, 'b');
    for (std::uint64_t at = 0; at < kFileSize; at += kGroupSize) {
      if (open.file->write(at, group.data(), group.size()) < 0) {
        throw std::runtime_error(std::string("cannot write: ") + std::strerror(errno));
      }
    }
  }
  return open;
}

// Random pieces of the groups of one owner.
class Pieces {
 public:
  Pieces(unsigned client, std::uint64_t owner) : random_(client), owner_(owner) {}
  std::uint64_t next() {
    const std::uint64_t group = random_() % (kFileSize / kGroupSize / 2) * 2 + owner_;
    return group * kGroupSize + random_() % (kGroupSize / kPiece) * kPiece;
  }

 private:
  std::mt19937_64 random_;
  std::uint64_t owner_;
};

template <typename Operation>
Round timed(Operation&& operation) {
  return [operation](std::vector<float>& seconds) mutable {
    const Placed here(0);
    for (float& one : seconds) {
      const double start = now();
      operation();
      one = static_cast<float>(now() - start);
    }
  };
}

void must(bool done, const char* what) {
  if (!done) throw std::runtime_error(what);
}

Round reads(JobFile& file, unsigned client, std::uint64_t owner) {
  return timed([&file, pieces = Pieces(client, owner),
                buffer = std::vector<char>(kPiece)]() mutable {
    must(file.read(pieces.next(), buffer.data(), kPiece) == static_cast<ssize_t>(kPiece), "read");
  });
}

Round writes(JobFile& file, unsigned client, std::uint64_t owner) {
  return timed([&file, pieces = Pieces(client, owner),
                buffer = std::vector<char>(kPiece)]() mutable {
    must(file.write(pieces.next(), buffer.data(), kPiece) == static_cast<ssize_t>(kPiece), "write");
  });
}

// What a read of this node's cache cannot do without: the same pieces, copied out of the same kind
// of memory, of which no more is asked.
Round copies(const SharedFile& shared, unsigned client) {
  shared.touch();
  return timed([&shared, pieces = Pieces(client, 0), buffer = std::vector<char>(kPiece)]() mutable {
    shared.copy_out(pieces.next(), buffer);
  });
}

Round echoes(Channel& channel, std::uint32_t payload, std::uint32_t answer) {
  return timed([&channel, payload, answer, buffer = std::vector<char>(64 << 10)]() mutable {
    EchoRequest request{};
    request.payload = payload;
    request.answer = answer;
    const iovec out[] = {{&request, sizeof request}, {buffer.data(), payload}};
    must(send_all(channel, out, payload == 0 ? 1 : 2) == 0, "send");
    must(receive_all(channel, buffer.data(), answer) == 0, "receive");
  });
}

// What is compared stands next to each other, so that both meet the same machine.
const char* const kWays[] = {"local_read",   "shared_copy", "local_write",
                             "remote_read",  "echo_read",   "relayed_read",
                             "remote_write", "echo_write",  "relayed_write"};
enum Way : unsigned {
  local_read,
  shared_copy,
  local_write,
  remote_read,
  echo_read,
  relayed_read,
  remote_write,
  echo_write,
  relayed_write
};

double processor_seconds(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The share of a processor that a manager takes while its peers are connected and silent.
double idle_share(const Folder& folder, double seconds) {
  const Settings settings = two_nodes(folder);
  int process = 0;
  std::ifstream(store_folder(settings, 1) + "/manager.lock") >> process;
  must(process != 0, "the manager's process is not known");
  const double before = processor_seconds(process);
  const double start = now();
  while (now() - start < seconds) usleep(10000);
  return (processor_seconds(process) - before) / (now() - start);
}

void print_percentiles(std::vector<float>& values) {
  std::printf("{\"p50_us\": %.3f, \"p95_us\": %.3f, \"p99_us\": %.3f, \"operations\": %zu}",
              quantile(values, 0.5) * 1e6, quantile(values, 0.95) * 1e6,
              quantile(values, 0.99) * 1e6, values.size());
}

void print_ratio(const char* name, const std::vector<std::vector<double>>& medians, unsigned over,
                 unsigned under) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < medians[over].size(); ++i) {
    ratios.push_back(medians[over][i] / medians[under][i]);
  }
  const Interval ratio = median_interval(ratios);
  std::printf("\"%s\": {\"median\": %.4f, \"low\": %.4f, \"high\": %.4f, \"rounds\": %zu}", name,
              ratio.middle, ratio.low, ratio.high, ratios.size());
}

int latency(const Options& options) {
  std::printf("{\"piece_bytes\": %zu, \"file_bytes\": %llu, \"runs\": [", kPiece,
              static_cast<unsigned long long>(kFileSize));
  for (std::size_t i = 0; i < options.clients.size(); ++i) {
    const unsigned clients = options.clients[i];
    const Folder folder;
    const std::string socket = folder.path() + "/echo";
    int server = 0;
    {
      const Placed there(1);
      server = start_echo_server(socket);
    }
    const SharedFile shared(folder.path() + "/shared", kFileSize);
    double idle = 0;
    const std::vector<Measured> all = measure(
        clients, std::size(kWays), options.rounds, options.operations,
        [&](unsigned client) {
          static std::unique_ptr<Channel> channel;
          std::string why;
          channel = connect_to("unix:" + socket, {}, why);
          if (channel == nullptr) throw std::runtime_error(why);
          JobFile& file = *open_file(folder).file;
          JobFile& relayed = *open_file(folder, Connections::relayed).file;
          constexpr std::uint32_t kHead = sizeof(Reply);
          return std::vector<Round>{reads(file, client, 0),
                                    copies(shared, client),
                                    writes(file, client, 0),
                                    reads(file, client, 1),
                                    echoes(*channel, 0, kHead + kPiece),
                                    reads(relayed, client, 1),
                                    writes(file, client, 1),
                                    echoes(*channel, kPiece, kHead),
                                    writes(relayed, client, 1)};
        },
        [&] { idle = idle_share(folder, options.idle_seconds); });
    waitpid(server, nullptr, 0);
    std::vector<std::vector<double>> medians(std::size(kWays));
    std::vector<std::vector<float>> pooled(std::size(kWays));
    for (const Measured& one : all) {
      std::vector<float> values = one.seconds;
      medians[one.way].push_back(quantile(values, 0.5));
      pooled[one.way].insert(pooled[one.way].end(), values.begin(), values.end());
    }
    std::printf("%s{\"clients\": %u, \"idle_manager_share\": %.6f", i == 0 ? "" : ", ", clients,
                idle);
    for (unsigned way = 0; way < std::size(kWays); ++way) {
      std::printf(", \"%s\": ", kWays[way]);
      print_percentiles(pooled[way]);
    }
    std::printf(", ");
    print_ratio("read_over_copy", medians, local_read, shared_copy);
    std::printf(", ");
    print_ratio("write_over_copy", medians, local_write, shared_copy);
    std::printf(", ");
    print_ratio("read_over_echo", medians, remote_read, echo_read);
    std::printf(", ");
    print_ratio("write_over_echo", medians, remote_write, echo_write);
    std::printf(", ");
    print_ratio("relayed_read_over_direct", medians, relayed_read, remote_read);
    std::printf(", ");
    print_ratio("relayed_write_over_direct", medians, relayed_write, remote_write);
    std::printf("}");
    std::fflush(stdout);
  }
  std::printf("]}\n");
  return 0;
}

// A round of writes with some computing after each; its last entry is the whole round, to the end
// of the sync that makes all of it durable in the store.
using Write = ssize_t (JobFile::*)(std::uint64_t, const void*, std::size_t);
Round burst(JobFile& file, unsigned client, std::uint64_t owner, Write write, double think) {
  return [&file, write, think, pieces = Pieces(client, owner),
          buffer = std::vector<char>(kPiece)](std::vector<float>& seconds) mutable {
    const double begin = now();
    for (std::size_t i = 0; i + 1 < seconds.size(); ++i) {
      const double start = now();
      const std::uint64_t at = pieces.next();
      const ssize_t done = (file.*write)(at, buffer.data(), kPiece);
      must(done == static_cast<ssize_t>(kPiece), "write");
      const double stop = now();
      seconds[i] = static_cast<float>(stop - start);
      while (now() - stop < think) {
      }
    }
    must(file.sync() == 0, "sync");
    seconds.back() = static_cast<float>(now() - begin);
  };
}

const char* const kBursts[] = {"local_sync",  "local_async",  "local_async_manager",
                               "remote_sync", "remote_async", "remote_async_manager"};
enum Burst : unsigned {
  local_sync,
  local_async,
  local_async_manager,
  remote_sync,
  remote_async,
  remote_async_manager
};

int writes_under_load(const Options& options) {
  std::printf("{\"piece_bytes\": %zu, \"think_us\": %.1f, \"runs\": [", kPiece, options.think_us);
  for (std::size_t i = 0; i < options.clients.size(); ++i) {
    const unsigned clients = options.clients[i];
    const Folder folder;
    const double think = options.think_us * 1e-6;
    const unsigned entries = options.operations + 1;
    const std::vector<Measured> all =
        measure(clients, std::size(kBursts), options.rounds, entries, [&](unsigned client) {
          JobFile& file = *open_file(folder).file;
          std::vector<Round> bursts;
          for (const std::uint64_t owner : {0, 1}) {
            for (const Write write :
                 {&JobFile::write, &JobFile::write_later, &JobFile::hand_over}) {
              bursts.push_back(burst(file, client, owner, write, think));
            }
          }
          return bursts;
        });
    std::vector<std::vector<double>> rounds(std::size(kBursts));  // the slowest client's, seconds
    std::vector<std::vector<float>> pooled(std::size(kBursts));
    for (const Measured& one : all) {
      float slowest = 0;
      for (std::size_t at = 0; at < one.seconds.size(); at += entries) {
        const auto begin = one.seconds.begin() + static_cast<std::ptrdiff_t>(at);
        pooled[one.way].insert(pooled[one.way].end(), begin, begin + options.operations);
        slowest = std::max(slowest, begin[options.operations]);
      }
      rounds[one.way].push_back(slowest);
    }
    std::printf("%s{\"clients\": %u", i == 0 ? "" : ", ", clients);
    for (unsigned way = 0; way < std::size(kBursts); ++way) {
      std::printf(", \"%s\": ", kBursts[way]);
      print_percentiles(pooled[way]);
    }
    std::printf(", ");
    print_ratio("local_round_async_over_sync", rounds, local_async, local_sync);
    std::printf(", ");
    print_ratio("local_round_async_manager_over_sync", rounds, local_async_manager, local_sync);
    std::printf(", ");
    print_ratio("remote_round_async_over_sync", rounds, remote_async, remote_sync);
    std::printf(", ");
    print_ratio("remote_round_async_manager_over_sync", rounds, remote_async_manager, remote_sync);
    std::printf("}");
    std::fflush(stdout);
  }
  std::printf("]}\n");
  return 0;
}

int main_throwing(int argc, char** argv) {
  CLI::App app{"What nvio's cache itself costs, at this node and at another (simulated) one; JSON"};
  app.require_subcommand(1);
  Options options;
  const auto add_common = [&options](CLI::App* command) {
    command->add_option("--clients", options.clients, "Processes that ask at the same time")
        ->capture_default_str()
        ->check(CLI::Range(1U, 10000U));
    command->add_option("--rounds", options.rounds, "Rounds, each of all ways in turns")
        ->capture_default_str()
        ->check(CLI::Range(6U, 10000U));
    command->add_option("--operations", options.operations, "Of each client in a round")
        ->capture_default_str()
        ->check(CLI::Range(100U, 1000000U));
  };
  CLI::App* latencies = app.add_subcommand(
      "latency",
      "4 KiB read and written here, beside a copy of shared memory, and at another node, beside a "
      "bare epoll echo");
  add_common(latencies);
  latencies
      ->add_option("--idle-seconds", options.idle_seconds,
                   "How long to watch an idle manager's processor time")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 3600.0));
  CLI::App* writes = app.add_subcommand(
      "writes", "4 KiB writes that are waited for, against queued ones, under load");
  add_common(writes);
  writes->add_option("--think-us", options.think_us, "Computing after each write, in microseconds")
      ->capture_default_str();
  CLI::App* scales = app.add_subcommand(
      "scale",
      "Connections and memory of a job's managers, its opens, syncs and closes, over its nodes");
  ScaleOptions scaled;
  scales->add_option("--nodes", scaled.nodes, "Nodes of a job")
      ->capture_default_str()
      ->check(CLI::Range(1U, unsigned{kMaxNodes}));
  scales->add_option("--ranks", scaled.ranks, "Its ranks, which wait rather than spin")
      ->capture_default_str()
      ->check(CLI::Range(1U, 10000U));
  scales->add_option("--repeats", scaled.repeats, "Jobs of each kind, in turns")
      ->capture_default_str()
      ->check(CLI::Range(1U, 10000U));
  scales->add_option("--rounds", scaled.rounds, "Files of each job")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1000000U));
  scales->add_flag("!--no-direct", scaled.direct, "Not with connections=direct");
  scales->add_flag("!--no-relayed", scaled.relayed, "Not with connections=relayed");
  scales->add_flag("!--no-lost", scaled.lost, "Do not stop and kill managers in the end");
  CLI11_PARSE(app, argc, argv);
  if (scales->parsed()) return scale(scaled);
  return writes->parsed() ? writes_under_load(options) : latency(options);
}

}  // namespace
}  // namespace nvio::bench

int main(int argc, char** argv) {
  try {
    return nvio::bench::main_throwing(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nvio-bench: %s\n", error.what());
    return 1;
  }
}
