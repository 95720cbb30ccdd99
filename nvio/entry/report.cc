#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <string>

namespace nvio {
namespace {

constexpr std::size_t kMost = 128;
std::array<std::atomic<std::uint64_t>, kMost> g_calls{};
std::array<std::atomic<std::uint64_t>, kMost> g_passed{};
const char* const* g_names = nullptr;
std::size_t g_count = 0;

}  // namespace

void count_call(std::size_t index) { count(g_calls[index]); }
void count_passed(std::size_t index) { count(g_passed[index]); }

void name_calls(const char* const* names, std::size_t names_count) {
  g_names = names;
  g_count = std::min(names_count, kMost);
}

const char* name_of_call(std::size_t index) { return index < g_count ? g_names[index] : ""; }

void print_report(const Counters& counters) {
  const auto line = [](const char* name, const std::atomic<std::uint64_t>& value,
                       const char* meaning) {
    char text[160];
    std::snprintf(text, sizeof text, "  %-20s %12" PRIu64 "  %s\n", name, value.load(), meaning);
    return std::string(text);
  };
  std::string report = "nvio: process " + std::to_string(getpid()) + "\n";
  report += line("reads", counters.reads, "read calls that reached the cache");
  report += line("read_hits", counters.read_hits, "of them, pieces of 1 MiB served from the store");
  report += line("reads_direct", counters.reads_direct, "reads of the file itself");
  report += line("fetches", counters.fetches, "blocks read into the store, in so many reads");
  report += line("fetched_bytes", counters.fetched_bytes, "");
  report += line("writes", counters.writes, "write calls that reached the cache");
  report += line("writes_cached", counters.writes_cached, "pieces of 64 KiB kept in the store");
  report += line("writes_direct", counters.writes_direct, "writes of the file itself");
  report += line("remote_reads", counters.remote_reads, "pieces of 1 MiB read at another node");
  report += line("remote_writes", counters.remote_writes, "and written there");
  report += line("write_backs", counters.write_backs, "runs written from the store to the file");
  report += line("written_back_bytes", counters.written_back_bytes, "");
  report += line("evicted_blocks", counters.evicted_blocks, "");
  report += line("syncs", counters.syncs, "");
  report += line("logged_bytes", counters.logged_bytes, "made durable in the store by a sync");
  report += line("checkpoints", counters.checkpoints, "times a whole file was made durable");
  for (std::size_t i = 0; i < g_count; ++i) {
    if (g_calls[i].load() == 0) continue;
    char text[160];
    std::snprintf(text, sizeof text, "  %-32s %10" PRIu64 " calls, %" PRIu64 " by the MPI's code\n",
                  g_names[i], g_calls[i].load(), g_passed[i].load());
    report += text;
  }
  std::fputs(report.c_str(), stderr);
}

}  // namespace nvio
