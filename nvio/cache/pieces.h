// What of a transfer in a view is the cache's to do, and how: of a file as one node has it, as a
// job on several has it, or as a replay has it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "admission.h"
#include "view.h"

namespace nvio {

// Whether a transfer that ranks make together, or one of pieces, is for the cache. What that does
// not take the MPI's own code does faster where ranks do it together, and in pieces.
template <typename File>
bool takes(File& file, const View& view, Direction direction, std::uint64_t bytes) {
  if (bytes == 0) return false;
  if (view.is_one_run()) return bytes < file.entry().bypass_size && file.takes_runs(direction);
  return file.takes_runs(direction) || file.is_undecided(direction);
}

// Calls move(runs, bytes) for the runs of `length` bytes of a view, a group of them after the
// other, till one is not done. False then, and where the MPI must do all.
template <typename File, typename Move>
bool move_pieces(File& file, const View& view, Direction direction, std::uint64_t position,
                 std::uint64_t length, Move&& move) {
  constexpr std::size_t kRunsAtATime = 4096;
  constexpr int kMostUndecided = 64;  // groups: a node that cannot be reached would never begin
  static thread_local std::vector<FileRun> runs;
  View::Walk walk(view, position, length);
  const auto is_long = [&](const FileRun& run) { return run.length >= file.entry().bypass_size; };
  for (int undecided = 0;;) {
    // The first ones go to the file, to learn whether it is slow; where it is not, the MPI does
    // all. What is long, and goes round the cache, does not show that.
    const bool takes_runs = file.takes_runs(direction);
    const std::uint64_t bytes = walk.next(runs, takes_runs ? kRunsAtATime : kFirstSamples);
    if (bytes == 0) return true;
    if (!takes_runs && (++undecided > kMostUndecided || !file.is_undecided(direction) ||
                        std::ranges::any_of(runs, is_long))) {
      return false;
    }
    if (!move(runs, bytes)) return false;
  }
}

}  // namespace nvio
