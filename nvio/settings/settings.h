// What a user may choose, from three places in this order: MPI_Info hints (nvio_*) of a file,
// environment variables (NVIO_*), a configuration file ($NVIO_CONFIG, lines "key = value").
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../medium/slow_memory.h"

namespace nvio {

enum class Admit : std::uint8_t { automatic = 0, always = 1, never = 2 };
enum class SyncTo : std::uint8_t { store = 0, file = 1 };
enum class Close : std::uint8_t { visible = 0, durable = 1 };
enum class Prefetch : std::uint8_t { none = 0, whole = 1 };
// Whether a write returns once it is done, or once it is queued: by this process, or by the manager
// of the node that has its bytes.
enum class Writes : std::uint8_t { sync = 0, async = 1, async_manager = 2 };
// How the blocks of a file belong to several nodes.
enum class Spread : std::uint8_t { striped = 0, parts = 1 };
// How a process speaks to the manager of another node: by a connection of its own, or by that of
// its own node's manager, which passes it on for all its processes.
enum class Connections : std::uint8_t { automatic = 0, direct = 1, relayed = 2 };
// What is told of what was done: nothing, a sum of the job, or each process's own account, too.
enum class Statistics : std::uint8_t { off = 0, job = 1, ranks = 2 };
enum class StoreKind : std::uint8_t { automatic = 0, tmpfs = 1, file = 2, pmem = 3, simulated = 4 };

// The variable by which `nvio run` tells processes where to leave their counters.
constexpr const char* kStatsFolder = "NVIO_STATS_FOLDER";

constexpr std::uint32_t kMaxNodes = 4096;
constexpr std::uint32_t kSilence = 60;  // seconds
// The kernel probes a silent machine by whole seconds, six of them in half of this.
constexpr std::uint32_t kLeastSilence = 12;
// Up to so many connections of a job (its ranks times its nodes) each rank has its own; automatic.
constexpr std::uint64_t kMostDirect = 1024;
constexpr std::uint64_t kMostStripe = 0xFFFFFFFF;  // bytes, as in Lustre

// Settings of one file; the process that opens it first on a node decides, and a later one may
// raise `sync` and `close`.
struct FileSettings {
  bool enabled = true;
  Admit admit = Admit::automatic;
  SyncTo sync = SyncTo::store;
  Close close = Close::visible;
  Prefetch prefetch = Prefetch::none;
  Spread spread = Spread::striped;
  Writes writes = Writes::sync;
  bool unique = false;  // no other job has it open meanwhile, as MPI_MODE_UNIQUE_OPEN says
  std::uint64_t bypass_size = 512 << 10;  // bytes: a transfer this large goes to the file
  std::uint64_t stripe = 0;  // bytes that one node writes (cache/stripe.h); 0: the file tells
  std::uint64_t striping_unit = 0;  // bytes, as the MPI's own hint has it; 0: not said
};

// Settings of a process.
struct Settings {
  FileSettings file;
  std::string store = "/dev/shm";  // folder in which the job's own folder is made
  StoreKind kind = StoreKind::automatic;
  MemorySpeed simulated;       // of a store of that kind
  std::uint64_t capacity = 0;  // bytes; 0: a quarter of what the store's file system has free
  std::string session;         // the job's name; empty: found from the launcher
  bool flush_at_sigterm = true;
  bool disabled = false;  // everything is passed on
  bool one_node = false;  // where the launcher does not tell
  // Nodes of the job (nodes/placement.h): 0 until known, then this process is on node `node`.
  std::uint32_t nodes = 0;
  std::optional<std::uint32_t> node;
  std::uint32_t ranks = 0;  // of the job, as MPI or launcher count them; 0: not known
  Connections connections = Connections::automatic;
  std::string rendezvous;       // folder that all nodes see; empty: they are all on this machine
  std::string address;          // under which other nodes reach this one; empty: its host name
  std::uint32_t patience = 60;  // seconds in which all ranks must have come out of MPI_Init
  std::uint32_t silence = kSilence;  // seconds after which who says nothing is taken for gone
  Statistics statistics = Statistics::off;
  bool quiet = false;
  std::vector<std::string> complaints;  // sentences about values that were not understood,
  std::vector<std::string> unknown;     // and about names that mean nothing
};

// Returns the value of a variable, or nothing.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the configuration file's text (never throws: what it cannot read it complains about),
// then the environment over it.
Settings read_settings(const Lookup& environment, std::string_view config_text);
Settings read_settings_of_process();

// The names of all settings, as they stand in the configuration file.
std::vector<std::string> setting_names();

// Sentences about names of settings (of `known`), of environment variables NVIO_*, of hints, and
// about a setting's value; empty where there is nothing to be said. They name the nearest that is
// known.
std::string about_setting(const std::string& name, const std::vector<std::string>& known);
std::string about_variable(const std::string& variable);
std::string about_hint(const std::string& key);
std::string about_value(const std::string& name, const std::string& value);

// For the processes that this one starts: `option` is where the user gave it. Returns a sentence
// when the value is none.
std::string put_into_environment(const std::string& option, const std::string& name,
                                 const std::string& value);

// Applies the hints of one MPI_Info over `base`: nvio_*, and MPI's `striping_unit`. Hints not
// understood are ignored, as MPI says; `complaints` has a sentence about each of ours.
FileSettings apply_hints(FileSettings base, const Lookup& hint,
                         std::vector<std::string>& complaints);

// "64K", "1 MiB", "3g", "4096": bytes; nothing when it is no size or does not fit.
std::optional<std::uint64_t> parse_size(std::string_view text);

}  // namespace nvio
