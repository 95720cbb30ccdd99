// What ranks do together: they wait for each other, and for nobody else.
#include <algorithm>
#include <utility>

#include "replaying.h"

namespace nvio {

void Replay::meet(std::size_t index, const TraceCall& call) {
  Rank& rank = ranks_[index];
  const Key key(call.file, rank.meetings[call.file]);
  Meeting& meeting = meetings_[key];
  meeting.ranks.push_back(index);
  meeting.calls.push_back(call);
  rank.waiting = true;
  if (meeting.ranks.size() < call.ranks) return;
  const Meeting complete = std::move(meeting);
  meetings_.erase(key);
  go_on(complete);
}

void Replay::go_on(const Meeting& meeting) {
  std::uint64_t last_start = 0;
  std::uint64_t end = 0;
  double begin = 0;
  for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
    Rank& rank = ranks_[meeting.ranks[i]];
    rank.waiting = false;
    ++rank.meetings[meeting.calls[i].file];
    last_start = std::max(last_start, meeting.calls[i].start);
    end = std::max(end, end_of(meeting.calls[i]));
    begin = std::max(begin, rank.clock);
  }
  const double lasted = seconds_of(end - last_start);
  switch (meeting.calls.front().kind) {
    case TraceKind::open:
      open(meeting, begin, lasted);
      break;
    case TraceKind::close:
      close(meeting, lasted);
      break;
    case TraceKind::sync:
      sync(meeting);
      break;
    default:
      if (ranks_[meeting.ranks.front()].inside) {
        leave_collective(meeting, lasted);
        break;
      }
      for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
        Rank& rank = ranks_[meeting.ranks[i]];
        rank.clock = begin;
        rank.inside = meeting.calls[i];
      }
  }
}

void Replay::open(const Meeting& meeting, double begin, double lasted) {
  double end = 0;
  for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
    const TraceCall& call = meeting.calls[i];
    Rank& rank = ranks_[meeting.ranks[i]];
    const bool first = rank.meetings.size() == 1 && rank.meetings.begin()->second == 1;
    rank.clock = begin + lasted + (first ? costs_.join() : 0);
    files_.charge(rank.clock, static_cast<std::uint32_t>(meeting.ranks.size()));
    Rank::Open& opened = rank.files[call.file];
    // Not by its own name: a store that a killed replay leaves has nothing for the job's file.
    opened.file = rank.session->acquire(descriptors_[call.file],
                                        "replay of " + job_.files[call.file].path, settings_.file);
    if (opened.file == nullptr) {
      rank.files.erase(call.file);
    } else {
      ++opened.handles;
      if (settings_.file.prefetch == Prefetch::whole && (call.length & kTraceReads) != 0) {
        const std::uint64_t blocks = opened.file->entry().blocks.load();
        opened.file->prefetch(static_cast<std::uint32_t>(i),
                              static_cast<std::uint32_t>(meeting.ranks.size()));
        charge_blocks(rank, blocks, opened.file->entry().blocks.load());
      }
    }
    skip_inner(rank, call);
    end = std::max(end, rank.clock);
  }
  // MPI lets nobody use the handle before it is everybody's; the program's next call waits.
  for (const std::size_t index : meeting.ranks) ranks_[index].clock = end;
}

// The ranks write back together, each from when it comes. What plain close took beyond an idle one
// was the file system's, for bytes that were written plainly: as many as still are so take it.
void Replay::close(const Meeting& meeting, double lasted) {
  std::vector<double> arrivals;
  double work = 0;
  // With a file a rank, the others close theirs at the same time.
  files_.charge(work, active_);
  for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
    Rank& rank = ranks_[meeting.ranks[i]];
    arrivals.push_back(rank.clock);
    const auto found = rank.files.find(meeting.calls[i].file);
    if (found == rank.files.end()) continue;
    CachedFile* file = found->second.file;
    if ((meeting.calls[i].length & kTraceDeletes) != 0) file->discard();
    const bool last = --found->second.handles == 0;
    file->write_back();
    rank.session->release(file);
    if (last) rank.files.erase(found);
  }
  files_.charge_nobody();
  const double plainly = recorded_write_bytes_ == 0
                             ? 1
                             : static_cast<double>(files_.passed_on_bytes()) /
                                   static_cast<double>(recorded_write_bytes_);
  const double idle = std::min(lasted, costs_.close());
  const double end = shared_end(std::move(arrivals), work) + idle + (lasted - idle) * plainly;
  for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
    Rank& rank = ranks_[meeting.ranks[i]];
    rank.clock = end;
    skip_inner(rank, meeting.calls[i]);
  }
}

void Replay::sync(const Meeting& meeting) {
  double end = 0;
  for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
    Rank& rank = ranks_[meeting.ranks[i]];
    const TraceCall& call = meeting.calls[i];
    files_.charge(rank.clock, active_);
    files_.replay(&call);
    const std::uint64_t logged = rank.session->counters().logged_bytes.load();
    if (const auto found = rank.files.find(call.file); found != rank.files.end()) {
      found->second.file->sync();
    }
    const std::uint64_t more = rank.session->counters().logged_bytes.load() - logged;
    if (more != 0) rank.clock += costs_.transfer(Way::cached_write, more, active_);
    skip_inner(rank, call);
    end = std::max(end, rank.clock);
  }
  files_.replay(nullptr);
  for (const std::size_t index : meeting.ranks) ranks_[index].clock = end;
}

// What the recorded call took beyond its slowest rank's transfers was exchange, and stays, but
// where each rank has joined it with nothing to transfer.
void Replay::leave_collective(const Meeting& meeting, double lasted) {
  double transfers = 0;
  double end = 0;
  for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
    Rank& rank = ranks_[meeting.ranks[i]];
    const TraceCall& outer = meeting.calls[i];
    std::uint64_t own = 0;
    for (std::size_t at = rank.next; at-- > 0;) {
      const TraceCall& call = (*rank.calls)[at];
      if (call.start <= outer.start && call.kind == TraceKind::collective) break;
      if (call.kind > TraceKind::collective && call.kind < TraceKind::end) own += call.duration;
    }
    transfers = std::max(transfers, seconds_of(own));
    end = std::max(end, rank.clock);
  }
  end += std::max(0.0, lasted - transfers);
  for (const std::size_t index : meeting.ranks) {
    ranks_[index].clock = end;
    ranks_[index].inside.reset();
  }
}

double shared_end(std::vector<double> arrivals, double work) {
  std::sort(arrivals.begin(), arrivals.end());
  double end = arrivals.empty() ? 0 : arrivals.back();
  // With the first `n` there, work ends at `at`: which holds if the next one comes later.
  double before = 0;
  for (std::size_t n = 0; n < arrivals.size(); ++n) {
    before += arrivals[n];
    const double at = (work + before) / static_cast<double>(n + 1);
    if (n + 1 == arrivals.size() || at <= arrivals[n + 1]) {
      end = std::max(end, at);
      break;
    }
  }
  return end;
}

}  // namespace nvio
