#include "stats.h"

#include <elf.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

namespace nvio {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Whether the file is a program into which nothing can be preloaded: one that names no loader.
bool is_static(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!file.read(reinterpret_cast<char*>(&part), sizeof part) || part.p_type == PT_INTERP) {
      return false;
    }
  }
  return true;
}

std::string why_none(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    if (is_static(word)) {
      return word +
             " is linked statically, so that nothing can be put under it: link it to the "
             "MPI's shared library";
    }
  }
  return "either it makes no MPI-IO call, or LD_PRELOAD did not reach its ranks (Open MPI on "
         "several "
         "machines: mpirun -x LD_PRELOAD), or they are linked statically";
}

struct Sum {
  std::size_t processes = 0, silent = 0;
  std::set<std::string> hosts;
  std::map<std::string, std::uint64_t> counters;
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> calls;  // all, by the MPI's code
  Json ranks = Json::array();
};

Sum sum_of(const std::string& folder) {
  Sum sum;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    ++sum.processes;
    const Json told = Json::parse(std::ifstream(entry.path()), nullptr, false);
    if (!told.is_object()) {
      ++sum.silent;  // its file is as it was when the process began
      continue;
    }
    sum.hosts.insert(told.value("host", ""));
    for (const auto& [name, value] : told["counters"].items()) {
      sum.counters[name] += value.get<std::uint64_t>();
    }
    for (const auto& [name, value] : told["calls"].items()) {
      sum.calls[name].first += value.value("calls", std::uint64_t{0});
      sum.calls[name].second += value.value("by_mpi", std::uint64_t{0});
    }
    sum.ranks.push_back(told);
  }
  return sum;
}

void print(const Sum& sum) {
  const auto count = [&](const char* name) {
    const auto found = sum.counters.find(name);
    return found == sum.counters.end() ? 0 : found->second;
  };
  std::fprintf(stderr, "nvio: %zu processes, %zu hosts%s\n", sum.processes, sum.hosts.size(),
               sum.silent == 0 ? ""
                               : (", of which " + std::to_string(sum.silent) +
                                  " ended without MPI_Finalize and are not in the sums")
                                     .c_str());
  const auto row = [&](const char* name, std::array<const char*, 4> counters) {
    std::fprintf(stderr, "  %-13s", name);
    for (const char* one : counters) std::fprintf(stderr, " %14" PRIu64, count(one));
    std::fprintf(stderr, "\n");
  };
  const auto pair = [&](const char* name, const char* times, const char* bytes) {
    std::fprintf(stderr, "  %-13s %14" PRIu64 " %14" PRIu64 "\n", name, count(times), count(bytes));
  };
  std::fprintf(stderr, "  %-13s %14s %14s %14s %14s\n", "", "calls", "in the store", "in the file",
               "at other nodes");
  row("reads", {"reads", "read_hits", "reads_direct", "remote_reads"});
  row("writes", {"writes", "writes_cached", "writes_direct", "remote_writes"});
  std::fprintf(stderr, "  %-13s %14s %14s\n", "", "times", "bytes");
  pair("fetched", "fetches", "fetched_bytes");
  pair("written back", "write_backs", "written_back_bytes");
  pair("synced", "syncs", "logged_bytes");
  std::string by_mpi;
  for (const auto& [name, calls] : sum.calls) {
    if (calls.second == 0 || name == "MPI_Finalize") continue;
    by_mpi += (by_mpi.empty() ? "" : ", ") + name + " " + std::to_string(calls.second) + " of " +
              std::to_string(calls.first);
  }
  if (!by_mpi.empty()) std::fprintf(stderr, "  by the MPI's own code: %s\n", by_mpi.c_str());
}

Json as_json(const Sum& sum) {
  Json calls = Json::object();
  for (const auto& [name, both] : sum.calls) {
    calls[name] = {{"calls", both.first}, {"by_mpi", both.second}};
  }
  return {{"processes", sum.processes},
          {"without_finalize", sum.silent},
          {"hosts", sum.hosts},
          {"counters", sum.counters},
          {"calls", calls},
          {"ranks", sum.ranks}};
}

}  // namespace

Stats::Stats(const Settings& settings) {
  // Not where the store lies, which may be full.
  std::error_code none;
  const std::string temporary = fs::temp_directory_path(none);
  for (const std::string& place : {settings.rendezvous, temporary, settings.store}) {
    if (place.empty()) continue;
    folder_ = place + "/nvio-stats-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) {
      folder_.clear();
      continue;
    }
    setenv(kStatsFolder, folder_.c_str(), 1);
    return;
  }
}

Stats::~Stats() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

bool Stats::tell(const std::vector<std::string>& command, const std::string& json) const {
  const Sum sum = sum_of(folder_);
  if (sum.processes == 0) {
    std::fprintf(stderr, "nvio run: nvio served no process of this command: %s\n",
                 why_none(command).c_str());
  } else {
    print(sum);
  }
  if (json.empty()) return true;
  constexpr int kIndent = 2;
  std::ofstream file(json);
  file << as_json(sum).dump(kIndent, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) std::fprintf(stderr, "nvio run: cannot write %s\n", json.c_str());
  return !file.fail();
}

}  // namespace nvio
