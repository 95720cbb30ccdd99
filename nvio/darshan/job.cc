#include "job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "clocks.h"
#include "placed.h"

namespace nvio {
namespace {

constexpr double kMostLeftOut = 0.2;        // of the time in calls
constexpr std::uint32_t kMostRanks = 4096;  // of one node

struct Span {
  TraceCall call;
  double start;
  double end;
};

class Conversion {
 public:
  explicit Conversion(const DarshanLog& log) : log_(log) {}

  JobTrace convert() {
    job_.problem = objection();
    job_.types_only = true;
    job_.assumed = {"its run time is from MPI_Init to MPI_Finalize",
                    "of its file system only the type is known; it is the calibrated one",
                    "a file was as long when it was opened as its reads show, if it was read"};
    if (log_.files.size() > std::numeric_limits<std::uint16_t>::max()) {
      job_.problem = "more files than a prediction keeps apart";
      return std::move(job_);
    }
    for (std::size_t number = 0; number < log_.files.size(); ++number) {
      add(log_.files[number], static_cast<std::uint16_t>(number));
    }
    if (job_.problem.empty() && !why_left_out_.empty() && left_out_ >= kMostLeftOut * in_all_)
      job_.problem = why_left_out_;
    finish();
    return std::move(job_);
  }

 private:
  // What of the whole log speaks against a prediction.
  std::string objection() const {
    if (!log_.problem.empty()) return log_.problem;
    const auto opened = [](const DarshanFile& file) { return !file.mpiio.empty(); };
    if (std::none_of(log_.files.begin(), log_.files.end(), opened)) {
      return "the job made no MPI-IO call that Darshan saw: nothing to cache";
    }
    if (!log_.partial.contains("DXT_POSIX")) {
      return "the log holds no DXT trace, only sums, which do not tell when and where calls were: "
             "run the next job with DXT_ENABLE_IO_TRACE=1";
    }
    for (const char* module : {"POSIX", "MPI-IO", "DXT_POSIX", "DXT_MPIIO"}) {
      const auto found = log_.partial.find(module);
      if (found != log_.partial.end() && found->second) {
        return std::string("the log is not whole: Darshan's memory for ") + module +
               " was full; give the next job more, by a line `MAX_RECORDS N " + module +
               "` in the file that DARSHAN_CONFIG_PATH names, or by DARSHAN_MODMEM (MiB)";
      }
    }
    if (log_.hosts.size() > 1) return "the job ran on several nodes, which are not predicted yet";
    if (log_.ranks > kMostRanks) return "more ranks than a node has, on hosts that are not told";
    return {};
  }

  void add(const DarshanFile& file, std::uint16_t number) {
    PlacedFile placed = place(file, log_.ranks);
    job_.files.push_back({file.path, file.file_system, placed.size});
    if (!placed.lacks.empty()) placed.openings.clear();
    for (const std::string& one : placed.assumed) assume(file, one);
    // Before what was done inside of them.
    for (const auto& [rank, calls] : file.mpiio_calls) {
      for (const DarshanCall& call : calls) {
        const bool together = call.writes ? placed.writes_together : placed.reads_together;
        if (!together || !placed.openings.contains(rank)) continue;
        add(rank, TraceKind::collective, number, placed.ranks, {false, 0, 0, call.start, call.end});
      }
    }
    double seconds = 0;
    for (const auto& [rank, calls] : file.posix_calls) {
      for (const DarshanCall& call : calls) {
        add(rank, call.writes ? TraceKind::write : TraceKind::read, number, 0, call);
        seconds += call.end - call.start;
      }
    }
    // Of calls that are not traced, too.
    double counted = 0;
    for (const DarshanCounters& one : file.mpiio) {
      counted += one["F_READ_TIME"] + one["F_WRITE_TIME"];
    }
    seconds = std::max(seconds, counted);
    in_all_ += seconds;
    if (!placed.lacks.empty() && !file.mpiio.empty()) {
      left_out_ += seconds;
      if (seconds >= most_left_out_) {
        most_left_out_ = seconds;
        why_left_out_ = file.path + ": " + placed.lacks;
      }
      assume(file, "it is left as it was, since " + placed.lacks);
    }
    for (const auto& [rank, openings] : placed.openings) add(file, placed, number, rank, openings);
  }

  // A rank's opens and closes of a file, fitted between its calls.
  void add(const DarshanFile& file, const PlacedFile& placed, std::uint16_t number,
           std::int64_t rank, const std::vector<Opening>& openings) {
    for (const Opening& one : openings) {
      double first = one.open_end;
      double last = one.open_start;
      for (const DarshanCalls* level : {&file.posix_calls, &file.mpiio_calls}) {
        const auto calls = level->find(rank);
        if (calls == level->end()) continue;
        for (const DarshanCall& call : calls->second) {
          if (call.start < one.open_start || call.start >= one.until) continue;
          first = std::min(first, call.start);
          last = std::max(last, call.end);
        }
      }
      last = std::max(last, first);
      // After a sync of any length, as of any rank.
      const double synced = std::max(one.close_start, last);
      const double closing = synced + (placed.sync_seconds >= 0 ? 1 / kNanoseconds : 0);
      const std::uint64_t flags = placed.flags;
      add(rank, TraceKind::open, number, placed.ranks, {false, 0, flags, one.open_start, first});
      add(rank, TraceKind::close, number, placed.ranks,
          {false, 0, flags, closing, std::max(closing, one.close_end)});
      if (placed.sync_seconds >= 0) {
        add(rank, TraceKind::sync, number, placed.ranks,
            {false, 0, 0, std::max(last, synced - placed.sync_seconds), synced});
      }
      if (&one != &openings.front() || rank != placed.openings.begin()->first) continue;
      const bool mapped = std::any_of(file.posix.begin(), file.posix.end(),
                                      [](const DarshanCounters& of) { return of["MMAPS"] > 0; });
      if (mapped || file.is_streamed) {
        add(rank, TraceKind::aside, number, 0, {false, 0, 0, first, first});
      }
    }
  }

  void add(std::int64_t rank, TraceKind kind, std::uint16_t number, std::uint32_t ranks,
           const DarshanCall& call) {
    spans_[rank].push_back(
        {{kind, 0, number, ranks, call.offset, call.length, 0, 0}, call.start, call.end});
  }

  void assume(const DarshanFile& file, const std::string& what) {
    job_.assumed.push_back(file.path + ": " + what);
  }

  // Times from the first call on, in nanoseconds.
  void finish() {
    double first = std::numeric_limits<double>::infinity();
    double last = 0;
    for (const auto& [rank, spans] : spans_) {
      for (const Span& span : spans) {
        first = std::min(first, span.start);
        last = std::max(last, span.end);
      }
    }
    const auto ns = [&](double seconds) {
      return static_cast<std::uint64_t>(std::llround((seconds - first) * kNanoseconds));
    };
    for (auto& [rank, spans] : spans_) {
      std::vector<TraceCall> calls;
      for (Span& span : spans) {
        span.call.start = ns(span.start);
        span.call.duration = ns(std::max(span.start, span.end)) - span.call.start;
        calls.push_back(span.call);
      }
      std::stable_sort(calls.begin(), calls.end(), comes_before);
      job_.ranks.push_back(std::move(calls));
    }
    // Logs of before Darshan 3.4 have whole seconds.
    job_.seconds = std::max(log_.seconds, last);
  }

  const DarshanLog& log_;
  JobTrace job_;
  std::map<std::int64_t, std::vector<Span>> spans_;
  double in_all_ = 0;  // seconds in calls, over the ranks
  double left_out_ = 0;
  double most_left_out_ = 0;  // of one file
  std::string why_left_out_;
};

}  // namespace

JobTrace job_of(DarshanLog log) {
  log.ranks = std::min(log.ranks, kMostRanks + 1);  // more are refused
  align_clocks(log);
  return Conversion(log).convert();
}

}  // namespace nvio
