#include "replay.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <span>
#include <utility>

#include "../cache/pieces.h"
#include "../system/random_ending.h"
#include "../system/real.h"
#include "replaying.h"

namespace nvio {
namespace {

volatile std::sig_atomic_t g_stopped = 0;

constexpr std::uint64_t kMostPiece = 16 << 20;  // of a replayed transfer: what is copied at once

}  // namespace

bool Replay::start() {
  for (const JobFileFacts& file : job_.files) {
    descriptors_.push_back(files_.make(file.size));
    if (descriptors_.back() < 0) {
      found_.problem = failed("the replay has no descriptor for " + file.path);
      return false;
    }
  }
  for (const std::vector<TraceCall>& calls : job_.ranks) {
    Rank rank;
    rank.calls = &calls;
    std::string why;
    rank.session = Session::join(settings_, why);
    if (rank.session == nullptr) {
      found_.problem = "the replay has no store: " + why;
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
  if (!start()) return found_;
  for (;;) {
    if (g_stopped != 0) {
      found_.problem = "stopped; nothing was left behind";
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
    found_.seconds = std::max(found_.seconds, rank.clock);
    const Counters& counters = rank.session->counters();
    found_.reads += counters.reads.load();
    found_.writes += counters.writes.load();
    found_.read_hits += counters.read_hits.load();
    found_.writes_cached += counters.writes_cached.load();
    found_.fetched_bytes += counters.fetched_bytes.load();
    found_.written_back_bytes += counters.written_back_bytes.load();
  }
  return found_;
}

// Returns the bytes that were written inside.
std::uint64_t Replay::skip_inner(Rank& rank, const TraceCall& outer) const {
  std::uint64_t written = 0;
  for (; rank.next < rank.calls->size(); ++rank.next) {
    const TraceCall& inner = (*rank.calls)[rank.next];
    if (inner.start >= end_of(outer)) break;
    if (inner.kind == TraceKind::write) written += inner.length;
  }
  return written;
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
  files_.charge(rank.clock, busy(rank));
  if (call.kind > TraceKind::end) {
    if (!move_in_view(rank, call)) {
      // The MPI's calls for it come next.
      if (!rank.inside) rank.recorded = std::max(rank.recorded, call.start);
      return;
    }
    recorded_write_bytes_ += skip_inner(rank, call);
  }
  if (!rank.inside) rank.recorded = std::max(rank.recorded, end_of(call));
  if (call.kind <= TraceKind::collective && !rank.inside) {
    meet(index, call);
  } else if (call.kind <= TraceKind::end) {
    transfer(rank, call);
  }
}

// Null where it is not cached.
CachedFile* Replay::file_of(const Rank& rank, const TraceCall& call) const {
  const auto found = rank.files.find(call.file);
  return found == rank.files.end() ? nullptr : found->second.file;
}

// As entry/ does it in the job; false where the MPI is to do it.
bool Replay::move_in_view(Rank& rank, const TraceCall& call) {
  CachedFile* file = file_of(rank, call);
  const bool reads = call.kind == TraceKind::read_view;
  const Direction direction = reads ? Direction::read : Direction::write;
  const View& view = job_.views[call.ranks];
  if (file == nullptr || !takes(*file, view, direction, call.length)) return false;
  const auto last = view.offset_of(call.offset + call.length - 1);
  if (reads && *last >= file->size()) return false;
  const std::uint64_t blocks = file->entry().blocks.load();
  double served = 0;
  const bool done = move_pieces(
      *file, view, direction, call.offset, call.length,
      [&](std::span<const FileRun> runs, std::uint64_t bytes) {
        buffer_.resize(std::max<std::size_t>(buffer_.size(), bytes));
        const Counters& counters = rank.session->counters();
        const std::atomic<std::uint64_t>& cached =
            reads ? counters.read_hits : counters.writes_cached;
        const std::uint64_t before = cached.load();
        if (!(reads ? file->read_runs(runs, buffer_.data())
                    : file->write_runs(runs, buffer_.data()))) {
          return false;
        }
        const double pieces = static_cast<double>(cached.load() - before);
        served += pieces;
        rank.clock += pieces * costs_.transfer(reads ? Way::piece_read : Way::piece_write,
                                               bytes / runs.size(), active_);
        return true;
      });
  charge_blocks(rank, blocks, file->entry().blocks.load());
  if (done) ++found_.calls;
  if (done && served > 0) ++found_.calls_served;
  return done;
}

void Replay::transfer(Rank& rank, const TraceCall& call) {
  const bool reads = call.kind == TraceKind::read;
  if (reads || call.kind == TraceKind::write) ++found_.calls;
  CachedFile* file = file_of(rank, call);
  if (file == nullptr) {
    rank.clock += seconds_of(call.duration);  // not the cache's: as it was
    return;
  }
  const Counters& counters = rank.session->counters();
  const std::atomic<std::uint64_t>& cached = reads ? counters.read_hits : counters.writes_cached;
  const std::uint64_t before = cached.load();
  const std::uint64_t blocks = file->entry().blocks.load();
  files_.replay(&call);
  switch (call.kind) {
    case TraceKind::read:
    case TraceKind::write:
      for (std::uint64_t done = 0; done < call.length;) {
        const std::uint64_t piece = std::min(kMostPiece, call.length - done);
        buffer_.resize(std::max<std::size_t>(buffer_.size(), piece));
        const bool large = call.length > piece;
        const ssize_t n = reads ? file->read(call.offset + done, buffer_.data(), piece, large)
                                : file->write(call.offset + done, buffer_.data(), piece, large);
        if (n <= 0) break;
        done += static_cast<std::uint64_t>(n);
      }
      if (!reads) recorded_write_bytes_ += call.length;
      if (cached.load() != before) {
        ++found_.calls_served;
        rank.clock +=
            costs_.transfer(reads ? Way::cached_read : Way::cached_write, call.length, active_);
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

void stop_replay() { g_stopped = 1; }
bool is_replay_stopped() { return g_stopped != 0; }

Replayed replay(const JobTrace& job, const Costs& costs, const Settings& settings) {
  Settings own = settings;
  own.session = "replay-" + std::to_string(getpid()) + random_ending();
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

}  // namespace nvio
