#include "replay.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "../cache/cached_file.h"
#include "grounds.h"
#include "virtual_files.h"

namespace nvio {
namespace {

volatile std::sig_atomic_t g_stopped = 0;

constexpr double kNanoseconds = 1e9;
constexpr std::uint64_t kMostPiece = 16 << 20;  // of a replayed transfer: what is copied at once

std::uint64_t end_of(const TraceCall& call) { return call.start + call.duration; }
double seconds_of(std::uint64_t ns) { return static_cast<double>(ns) / kNanoseconds; }

// One rank: where it is in its trace, and when that is.
struct Rank {
  const std::vector<TraceCall>* calls = nullptr;
  std::size_t next = 0;
  std::uint64_t recorded = 0;  // the end of its last call in the recorded run
  double clock = 0;
  bool waiting = false;
  std::optional<TraceCall> inside;  // the collective call whose POSIX calls it is making
  std::unique_ptr<Session> session;
  struct Open {
    CachedFile* file = nullptr;
    std::uint32_t handles = 0;
  };
  std::map<std::uint16_t, Open> files;
  std::map<std::uint16_t, std::uint64_t> meetings;  // how often it met others, a file
};

// A call that several ranks make together: it goes on when the last of them is there.
struct Meeting {
  std::vector<std::size_t> ranks;
  std::vector<TraceCall> calls;
};

class Replay {
 public:
  Replay(const JobTrace& job, const Costs& costs, Settings settings)
      : job_(job),
        costs_(costs),
        settings_(std::move(settings)),
        files_(costs),
        active_(active_ranks(job)) {}
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  Replayed run();

 private:
  using Key = std::pair<std::uint16_t, std::uint64_t>;

  bool start();
  double ready(const Rank& rank) const;
  std::uint32_t busy(const Rank& own) const;
  void step(std::size_t index);
  void transfer(Rank& rank, const TraceCall& call);
  void charge_blocks(Rank& rank, std::uint64_t before, std::uint64_t after) const;
  void meet(std::size_t index, const TraceCall& call);
  void go_on(const Meeting& meeting);
  void open(const Meeting& meeting, double begin, double lasted);
  void close(const Meeting& meeting, double lasted);
  void sync(const Meeting& meeting);
  void leave_collective(const Meeting& meeting, double lasted);
  void skip_inner(Rank& rank, const TraceCall& outer) const;

  const JobTrace& job_;
  const Costs& costs_;
  Settings settings_;
  VirtualFiles files_;
  std::vector<int> descriptors_;  // a virtual file for each of the job's
  std::vector<Rank> ranks_;
  std::map<Key, Meeting> meetings_;
  std::vector<char> buffer_;
  std::uint32_t active_;  // ranks that move bytes
  std::uint64_t recorded_write_bytes_ = 0;
  std::string problem_;
};

bool Replay::start() {
  for (const JobFileFacts& file : job_.files) {
    descriptors_.push_back(files_.make(file.size));
    if (descriptors_.back() < 0) {
      problem_ = "a file as large as " + file.path + " cannot be replayed on this machine";
      return false;
    }
  }
  for (const std::vector<TraceCall>& calls : job_.ranks) {
    Rank rank;
    rank.calls = &calls;
    std::string why;
    rank.session = Session::join(settings_, why);
    if (rank.session == nullptr) {
      problem_ = "the replay has no store: " + why;
      return false;
    }
    ranks_.push_back(std::move(rank));
  }
  return true;
}

// When the rank makes its next call: it computes first, as it did; inside of a collective call it
// only exchanged, which the meeting accounts for.
double Replay::ready(const Rank& rank) const {
  if (rank.next == rank.calls->size() || rank.inside) return rank.clock;
  const TraceCall& call = (*rank.calls)[rank.next];
  return rank.clock + (call.start > rank.recorded ? seconds_of(call.start - rank.recorded) : 0);
}

// Ranks whose calls are under way when this one begins its own, itself among them.
std::uint32_t Replay::busy(const Rank& own) const {
  std::uint32_t count = 1;
  for (const Rank& rank : ranks_) {
    if (&rank != &own && !rank.waiting && rank.clock > own.clock) ++count;
  }
  return count;
}

Replayed Replay::run() {
  Replayed result;
  if (!start()) {
    result.problem = problem_;
    return result;
  }
  for (;;) {
    if (g_stopped != 0) {
      result.problem = "stopped; nothing was left behind";
      break;
    }
    std::size_t first = ranks_.size();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Rank& rank = ranks_[i];
      const bool done = rank.next == rank.calls->size() && !rank.inside;
      if (rank.waiting || done) continue;
      if (first == ranks_.size() || ready(rank) < ready(ranks_[first])) first = i;
    }
    if (first != ranks_.size()) {
      step(first);
    } else if (!meetings_.empty()) {
      // Ranks that wait for others which never come: handles that do not belong together.
      const Meeting meeting = meetings_.begin()->second;
      meetings_.erase(meetings_.begin());
      go_on(meeting);
    } else {
      break;
    }
  }
  for (Rank& rank : ranks_) {
    files_.charge(rank.clock, active_);
    for (auto& [number, open] : rank.files) {
      for (; open.handles != 0; --open.handles) rank.session->release(open.file);
    }
    result.seconds = std::max(result.seconds, rank.clock);
    result.calls += rank.calls->size();
    const Counters& counters = rank.session->counters();
    result.reads += counters.reads.load();
    result.writes += counters.writes.load();
    result.read_hits += counters.read_hits.load();
    result.writes_cached += counters.writes_cached.load();
    result.fetched_bytes += counters.fetched_bytes.load();
    result.written_back_bytes += counters.written_back_bytes.load();
  }
  return result;
}

void Replay::skip_inner(Rank& rank, const TraceCall& outer) const {
  while (rank.next < rank.calls->size() && (*rank.calls)[rank.next].start < end_of(outer)) {
    ++rank.next;
  }
}

void Replay::step(std::size_t index) {
  Rank& rank = ranks_[index];
  if (rank.inside) {
    const bool inner =
        rank.next < rank.calls->size() && (*rank.calls)[rank.next].start < end_of(*rank.inside);
    if (!inner) {
      meet(index, *rank.inside);
      return;
    }
  }
  rank.clock = ready(rank);
  const TraceCall& call = (*rank.calls)[rank.next++];
  if (!rank.inside) rank.recorded = std::max(rank.recorded, end_of(call));
  if (call.kind <= TraceKind::collective && !rank.inside) {
    meet(index, call);
    return;
  }
  files_.charge(rank.clock, busy(rank));
  transfer(rank, call);
}

void Replay::transfer(Rank& rank, const TraceCall& call) {
  const auto found = rank.files.find(call.file);
  CachedFile* file = found == rank.files.end() ? nullptr : found->second.file;
  if (file == nullptr) {
    rank.clock += seconds_of(call.duration);  // not the cache's: as it was
    return;
  }
  const Counters& counters = rank.session->counters();
  const std::uint64_t hits = counters.read_hits.load();
  const std::uint64_t cached = counters.writes_cached.load();
  const std::uint64_t blocks = file->entry().blocks.load();
  files_.replay(&call);
  switch (call.kind) {
    case TraceKind::read:
    case TraceKind::write:
      for (std::uint64_t done = 0; done < call.length;) {
        const std::uint64_t piece = std::min(kMostPiece, call.length - done);
        buffer_.resize(std::max<std::size_t>(buffer_.size(), piece));
        const bool large = call.length > piece;
        const ssize_t n = call.kind == TraceKind::read
                              ? file->read(call.offset + done, buffer_.data(), piece, large)
                              : file->write(call.offset + done, buffer_.data(), piece, large);
        if (n <= 0) break;
        done += static_cast<std::uint64_t>(n);
      }
      if (call.kind == TraceKind::write) recorded_write_bytes_ += call.length;
      if (counters.read_hits.load() != hits) {
        rank.clock += costs_.transfer(Way::cached_read, call.length, active_);
      }
      if (counters.writes_cached.load() != cached) {
        rank.clock += costs_.transfer(Way::cached_write, call.length, active_);
      }
      charge_blocks(rank, blocks, file->entry().blocks.load());
      break;
    case TraceKind::resize:
      file->truncate(call.length);
      rank.clock += seconds_of(call.duration);
      break;
    case TraceKind::flush:
      file->sync();
      break;
    default:
      file->step_aside();
      rank.clock += seconds_of(call.duration);
      break;
  }
  files_.replay(nullptr);
}

// Blocks that the store did not hold before have no memory yet.
void Replay::charge_blocks(Rank& rank, std::uint64_t before, std::uint64_t after) const {
  if (after <= before) return;
  const double made = costs_.transfer(Way::cached_new, kBlockSize, active_) -
                      costs_.transfer(Way::cached_write, kBlockSize, active_);
  rank.clock += std::max(0.0, made) * static_cast<double>(after - before);
}

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
    opened.file =
        rank.session->acquire(descriptors_[call.file], job_.files[call.file].path, settings_.file);
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

// What the recorded call took beyond its slowest rank's transfers was exchange, and stays.
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
      if (call.kind > TraceKind::collective) own += call.duration;
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

}  // namespace

void stop_replay() { g_stopped = 1; }

Replayed replay(const JobTrace& job, const Costs& costs, const Settings& settings) {
  Settings own = settings;
  own.session = "replay-" + std::to_string(getpid());
  own.nodes = 1;
  own.node = 0;
  own.kind = StoreKind::automatic;
  return Replay(job, costs, std::move(own)).run();
}

double recorded_seconds(const JobTrace& job) {
  std::uint64_t end = 0;
  for (const auto& calls : job.ranks) {
    for (const TraceCall& call : calls) end = std::max(end, end_of(call));
  }
  return seconds_of(end);
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
