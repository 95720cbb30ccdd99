// The replay of a job, as replay.h says it: each rank goes through its trace (replay.cc), and they
// meet at what they do together (meetings.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../cache/cached_file.h"
#include "grounds.h"
#include "replay.h"
#include "virtual_files.h"

namespace nvio {

inline std::uint64_t end_of(const TraceCall& call) { return call.start + call.duration; }
inline double seconds_of(std::uint64_t ns) { return static_cast<double>(ns) / kNanoseconds; }

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
  bool move_in_view(Rank& rank, const TraceCall& call);
  void charge_blocks(Rank& rank, std::uint64_t before, std::uint64_t after) const;
  void meet(std::size_t index, const TraceCall& call);
  void go_on(const Meeting& meeting);
  void open(const Meeting& meeting, double begin, double lasted);
  void close(const Meeting& meeting, double lasted);
  void sync(const Meeting& meeting);
  void leave_collective(const Meeting& meeting, double lasted);
  CachedFile* file_of(const Rank& rank, const TraceCall& call) const;
  std::uint64_t skip_inner(Rank& rank, const TraceCall& outer) const;

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
  Replayed found_;
};

}  // namespace nvio
