#include "placed.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace nvio {
namespace {

constexpr const char* kStamps[] = {"F_OPEN_START_TIMESTAMP", "F_OPEN_END_TIMESTAMP",
                                   "F_CLOSE_START_TIMESTAMP", "F_CLOSE_END_TIMESTAMP"};
constexpr double kMostSeconds = 1e9;

// As MPICH and Open MPI have them.
constexpr int kReadOnly = 2;
constexpr int kWriteOnly = 4;
constexpr int kDeleteOnClose = 16;

constexpr double kMetaCalls = 4;  // two opens and two closes share the time that is not told apart

// A rank's own counters, or its share of those of all ranks.
struct Share {
  const DarshanCounters* counters;
  double parts;
  double operator[](const std::string& name) const { return (*counters)[name] / parts; }
  double time(const std::string& name) const { return (*counters)[name]; }
};

using Shares = std::map<std::int64_t, Share>;

Shares shares_of(const std::vector<DarshanCounters>& records, std::uint32_t ranks) {
  Shares shares;
  for (const DarshanCounters& one : records) {
    if (one.rank != kAllRanks) {
      shares.insert_or_assign(one.rank, Share{&one, 1});
      continue;
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      shares.try_emplace(rank, Share{&one, static_cast<double>(ranks)});
    }
  }
  return shares;
}

double sum_of(const std::vector<DarshanCounters>& records, const std::string& name) {
  double sum = 0;
  for (const DarshanCounters& one : records) sum += std::max(0.0, one[name]);
  return sum;
}

std::string number(double value) { return std::to_string(std::llround(value)); }

class Placing {
 public:
  Placing(const DarshanFile& file, std::uint32_t ranks)
      : file_(file), shares_(shares_of(file.mpiio, ranks)) {
    for (const auto& [rank, calls] : file.posix_calls) {
      all_.insert(all_.end(), calls.begin(), calls.end());
    }
    std::stable_sort(all_.begin(), all_.end(),
                     [](const DarshanCall& a, const DarshanCall& b) { return a.start < b.start; });
  }

  PlacedFile place() {
    placed_.size = size_when_opened();
    placed_.sync_seconds = -1;
    placed_.lacks = lacks_calls();
    if (placed_.lacks.empty()) placed_.lacks = place_openings();
    if (placed_.lacks.empty()) placed_.lacks = place_syncs();
    placed_.reads_together = together("READS", false);
    placed_.writes_together = together("WRITES", true);
    return std::move(placed_);
  }

 private:
  // Reads move bytes that the file had, or that were written before.
  std::uint64_t size_when_opened() const {
    std::uint64_t size = 0;
    std::uint64_t written = 0;
    for (const DarshanCall& call : all_) {
      const std::uint64_t end = call.offset + call.length;
      if (call.writes) {
        written = std::max(written, end);
      } else if (call.length != 0 && end > written) {
        size = std::max(size, end);
      }
    }
    return size;
  }

  std::string lacks_calls() const {
    const double counted = sum_of(file_.posix, "READS") + sum_of(file_.posix, "WRITES");
    const double bytes = sum_of(file_.mpiio, "BYTES_READ") + sum_of(file_.mpiio, "BYTES_WRITTEN");
    if (counted == 0 && bytes != 0) {
      return "its MPI reached it by other calls than POSIX ones, which Darshan did not see";
    }
    if (static_cast<double>(all_.size()) >= counted) return {};
    return "DXT has " + number(static_cast<double>(all_.size())) + " of its " + number(counted) +
           " calls: its memory was full, or a trigger or an exclusion left them out";
  }

  std::string place_openings() {
    if (shares_.empty()) return "no rank of MPI-IO opened it";
    const Share& first = shares_.begin()->second;
    const double often = first["INDEP_OPENS"] + first["COLL_OPENS"];
    const bool together = first["COLL_OPENS"] != 0;
    for (const auto& [rank, share] : shares_) {
      if (share["INDEP_OPENS"] + share["COLL_OPENS"] != often || often != std::floor(often) ||
          (share["INDEP_OPENS"] != 0 && share["COLL_OPENS"] != 0) ||
          together != (share["COLL_OPENS"] != 0)) {
        return "its ranks did not all open it as often and in the same way";
      }
    }
    placed_.ranks = together ? static_cast<std::uint32_t>(shares_.size()) : 1;
    const auto mode = std::llround(first.time("MODE"));
    if ((mode & kWriteOnly) == 0) placed_.flags |= kTraceReads;
    if ((mode & kReadOnly) == 0) placed_.flags |= kTraceWrites;
    if ((mode & kDeleteOnClose) != 0) placed_.flags |= kTraceDeletes;
    // All handles are open before the first one is closed; one has no other to wait for.
    bool at_once = true;
    for (const auto& [rank, share] : shares_) {
      if (share.time("F_CLOSE_START_TIMESTAMP") == 0) return "it was never closed";
      for (const char* stamp : kStamps) {
        if (share.time(stamp) > 0 && share.time(stamp) <= kMostSeconds) continue;
        return "a Darshan as old as this log's did not note when a file was opened and closed";
      }
      at_once &=
          often == 1 || share.time("F_OPEN_END_TIMESTAMP") <= share.time("F_CLOSE_START_TIMESTAMP");
    }
    if (!at_once && often != 2) {
      return "it was opened " + number(often) +
             " times a rank, of which only the first and the "
             "last time are told";
    }
    const double between = at_once ? 0 : gap_between();
    for (const auto& [rank, share] : shares_) {
      placed_.openings[rank] = at_once ? std::vector{whole(share)} : halves(share, between);
    }
    return {};
  }

  static Opening whole(const Share& share) {
    const double closed = share.time("F_CLOSE_END_TIMESTAMP");
    return {share.time("F_OPEN_START_TIMESTAMP"), share.time("F_OPEN_END_TIMESTAMP"),
            share.time("F_CLOSE_START_TIMESTAMP"), closed, closed};
  }

  // Of two openings the log has the first one's start, the second one's end, and so of the closes.
  static std::vector<Opening> halves(const Share& share, double between) {
    const Opening all = whole(share);
    const double meta = std::max(0.0, share["F_META_TIME"]) / kMetaCalls;
    const double reopened = std::max(between, all.open_end - meta);
    return {{all.open_start, std::min(all.open_start + meta, all.close_start), all.close_start,
             std::min(between, all.close_start + meta), between},
            {std::min(reopened, all.open_end), all.open_end,
             std::max(all.open_end, all.close_end - meta), all.close_end, all.until}};
  }

  // The middle of the longest time without a call between the first close and the last open.
  double gap_between() const {
    const DarshanCounters& any = *shares_.begin()->second.counters;
    double from = any["F_CLOSE_START_TIMESTAMP"];
    double to = any["F_OPEN_END_TIMESTAMP"];
    for (const auto& [rank, share] : shares_) {
      from = std::min(from, share.time("F_CLOSE_START_TIMESTAMP"));
      to = std::max(to, share.time("F_OPEN_END_TIMESTAMP"));
    }
    double longest = -1;
    double middle = from;
    double quiet = from;
    const auto look = [&](double until) {
      if (until - quiet > longest) {
        longest = until - quiet;
        middle = (quiet + until) / 2;
      }
    };
    for (const DarshanCall& call : all_) {
      if (call.end <= from || call.start >= to) continue;
      look(call.start);
      quiet = std::max(quiet, call.end);
    }
    look(to);
    return middle;
  }

  // Syncs are counted, and their time is in that of writes; when they were is not told.
  std::string place_syncs() {
    const bool written =
        std::any_of(all_.begin(), all_.end(), [](const DarshanCall& call) { return call.writes; });
    const double often = std::max(sum_of(file_.mpiio, "SYNCS"),
                                  sum_of(file_.posix, "FSYNCS") + sum_of(file_.posix, "FDSYNCS"));
    if (!written || often == 0) return {};
    const auto ranks = static_cast<double>(shares_.size());
    const bool once = sum_of(file_.mpiio, "SYNCS") == ranks && often == ranks &&
                      placed_.openings.begin()->second.size() == 1;
    if (!once)
      return "it was synced " + number(often / ranks) + " times a rank or so, and when is not told";
    double writing = 0;
    for (const auto& [rank, calls] : file_.mpiio_calls) {
      for (const DarshanCall& call : calls) {
        if (call.writes) writing += call.end - call.start;
      }
    }
    placed_.sync_seconds = std::max(0.0, sum_of(file_.mpiio, "F_WRITE_TIME") - writing) / ranks;
    placed_.assumed.push_back("its one MPI_File_sync was just before the close");
    return {};
  }

  // Whether all its reads, or all its writes, are collective calls. A segment does not tell.
  bool together(const std::string& way, bool writes) {
    if (placed_.ranks == 1) return false;
    const double collective = sum_of(file_.mpiio, "COLL_" + way);
    if (collective == 0) return false;
    bool all = sum_of(file_.mpiio, "INDEP_" + way) + sum_of(file_.mpiio, "SPLIT_" + way) +
                   sum_of(file_.mpiio, "NB_" + way) ==
               0;
    for (const auto& [rank, share] : shares_) {
      const auto calls = file_.mpiio_calls.find(rank);
      const auto seen =
          calls == file_.mpiio_calls.end()
              ? 0
              : std::count_if(calls->second.begin(), calls->second.end(),
                              [&](const DarshanCall& call) { return call.writes == writes; });
      all &= static_cast<double>(seen) * static_cast<double>(shares_.size()) == collective;
    }
    if (!all) {
      placed_.assumed.push_back(std::string("no rank waited for another in its collective ") +
                                (writes ? "writes" : "reads") +
                                ", since which calls these were is not told");
    }
    return all;
  }

  const DarshanFile& file_;
  Shares shares_;
  std::vector<DarshanCall> all_;  // of all ranks, by start
  PlacedFile placed_;
};

}  // namespace

PlacedFile place(const DarshanFile& file, std::uint32_t ranks) {
  return Placing(file, ranks).place();
}

}  // namespace nvio
