#include "report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "../system/host_name.h"
#include "../system/real.h"

namespace nvio {
namespace {

constexpr std::size_t kMost = 128;
std::array<std::atomic<std::uint64_t>, kMost> g_calls{};
std::array<std::atomic<std::uint64_t>, kMost> g_passed{};
const char* const* g_names = nullptr;
std::size_t g_count = 0;

struct Line {
  const char* name;
  std::atomic<std::uint64_t> Counters::*value;
  const char* meaning;
};
constexpr Line kLines[] = {
    {"reads", &Counters::reads, "read calls that reached the cache"},
    {"read_hits", &Counters::read_hits, "of them, pieces of 1 MiB served from the store"},
    {"reads_direct", &Counters::reads_direct, "reads of the file itself"},
    {"fetches", &Counters::fetches, "blocks read into the store, in so many reads"},
    {"fetched_bytes", &Counters::fetched_bytes, ""},
    {"writes", &Counters::writes, "write calls that reached the cache"},
    {"writes_cached", &Counters::writes_cached, "pieces of 64 KiB kept in the store"},
    {"writes_direct", &Counters::writes_direct, "writes of the file itself"},
    {"remote_reads", &Counters::remote_reads, "pieces of 1 MiB read at another node"},
    {"remote_writes", &Counters::remote_writes, "and written there"},
    {"windows", &Counters::windows,
     "written by the MPI with bytes that it had read (data sieving)"},
    {"write_backs", &Counters::write_backs, "runs written from the store to the file"},
    {"written_back_bytes", &Counters::written_back_bytes, ""},
    {"evicted_blocks", &Counters::evicted_blocks, ""},
    {"syncs", &Counters::syncs, ""},
    {"logged_bytes", &Counters::logged_bytes, "made durable in the store by a sync"},
    {"checkpoints", &Counters::checkpoints, "times a whole file was made durable"},
    {"simulated_ns", &Counters::simulated_ns, "waited for a simulated store (store_kind)"},
};

// This process's file in the folder where `nvio run` looks; empty where there is none.
std::string told_in() {
  const char* folder = std::getenv(kStatsFolder);
  if (folder == nullptr || *folder == '\0') return {};
  return std::string(folder) + "/" + host_name() + "-" + std::to_string(getpid());
}

std::string as_json(const Counters& counters) {
  std::string text = "{\"host\": \"" + host_name() +
                     "\", \"process\": " + std::to_string(getpid()) + ", \"counters\": {";
  for (const Line& line : kLines) {
    text += std::string(&line == kLines ? "" : ", ") + "\"" + line.name +
            "\": " + std::to_string((counters.*line.value).load());
  }
  text += "}, \"calls\": {";
  const char* separator = "";
  for (std::size_t i = 0; i < g_count; ++i) {
    if (g_calls[i].load() == 0) continue;
    text += std::string(separator) + "\"" + g_names[i] +
            "\": {\"calls\": " + std::to_string(g_calls[i].load()) +
            ", \"by_mpi\": " + std::to_string(g_passed[i].load()) + "}";
    separator = ", ";
  }
  return text + "}}\n";
}

std::string in_full(const Counters& counters) {
  std::string report = "nvio: process " + std::to_string(getpid()) + "\n";
  char text[160];
  for (const Line& line : kLines) {
    std::snprintf(text, sizeof text, "  %-20s %12" PRIu64 "  %s\n", line.name,
                  (counters.*line.value).load(), line.meaning);
    report += text;
  }
  for (std::size_t i = 0; i < g_count; ++i) {
    if (g_calls[i].load() == 0) continue;
    std::snprintf(text, sizeof text, "  %-32s %10" PRIu64 " calls, %" PRIu64 " by the MPI's code\n",
                  g_names[i], g_calls[i].load(), g_passed[i].load());
    report += text;
  }
  return report;
}

std::string in_short(const Counters& counters) {
  char text[256];
  std::snprintf(text, sizeof text,
                "nvio: process %d: %" PRIu64 " reads, %" PRIu64 " of the file; %" PRIu64
                " writes, %" PRIu64 " of the file; %" PRIu64 " bytes written back\n",
                static_cast<int>(getpid()), counters.reads.load(), counters.reads_direct.load(),
                counters.writes.load(), counters.writes_direct.load(),
                counters.written_back_bytes.load());
  return text;
}

}  // namespace

void count_call(std::size_t index) { count(g_calls[index]); }
void count_passed(std::size_t index) { count(g_passed[index]); }

void name_calls(const char* const* names, std::size_t names_count) {
  g_names = names;
  g_count = std::min(names_count, kMost);
}

const char* name_of_call(std::size_t index) { return index < g_count ? g_names[index] : ""; }

void report_begin(const Settings& settings) {
  const std::string path = told_in();
  if (settings.statistics == Statistics::off || path.empty()) return;
  const int fd = real().open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) real().close(fd);
}

void report_end(const Settings& settings, const Counters& counters) {
  static bool is_told = false;
  if (settings.statistics == Statistics::off || std::exchange(is_told, true)) return;
  const std::string path = told_in();
  const int fd = path.empty() ? -1 : real().open(path.c_str(), O_WRONLY | O_CLOEXEC);
  bool told = false;
  if (fd >= 0) {
    const std::string text = as_json(counters);
    told = write_own(fd, text.data(), text.size(), 0) >= 0;
    real().close(fd);
  }
  if (settings.statistics == Statistics::ranks) {
    std::fputs(in_full(counters).c_str(), stderr);
  } else if (!told) {
    std::fputs(in_short(counters).c_str(), stderr);
  }
}

}  // namespace nvio
