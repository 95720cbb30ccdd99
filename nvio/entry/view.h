// A file's view as runs of bytes: what a rank's filetype shows, tile after tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "../cache/file_run.h"
#include "../mpi/type_map.h"

namespace nvio {

class View {
 public:
  // Runs of a filetype that are kept for a view; 24 bytes each. A view of more is the MPI's.
  static constexpr std::size_t kMostRuns = 1 << 18;

  // Nothing where the runs are not in the file's order or overlap, in a tile or between two: MPI
  // allows none of that for writing.
  static std::optional<View> of(const TypeMap& filetype, std::uint64_t displacement);

  // Whether all bytes that it shows lie side by side; then where they begin.
  bool is_one_run() const { return runs_.size() == 1 && runs_[0].length == extent_; }
  std::uint64_t begin() const { return displacement_ + runs_[0].offset; }

  // The runs of `length` bytes from byte `position` of the view on, in order. Neighbours are
  // joined.
  class Walk {
   public:
    // The view must outlive it.
    Walk(const View& view, std::uint64_t position, std::uint64_t length);
    // The next ones, at most `most`; their bytes in all. None: it is at its end.
    std::uint64_t next(std::vector<FileRun>& runs, std::size_t most);

   private:
    const View& view_;
    std::uint64_t left_;
    std::uint64_t tile_;    // where it begins in the file
    std::size_t index_;     // of a run
    std::uint64_t within_;  // bytes of it that are behind us
  };
  // Where byte `position` of the view lies; nothing where that is beyond what a file can hold.
  std::optional<std::uint64_t> offset_of(std::uint64_t position) const;

 private:
  std::size_t run_at(std::uint64_t byte_of_tile) const;

  std::vector<FileRun> runs_;          // of one tile, from its beginning
  std::vector<std::uint64_t> before_;  // bytes of the tile in front of each
  std::uint64_t displacement_ = 0;
  std::uint64_t extent_ = 0;
  std::uint64_t size_ = 0;  // bytes in a tile
};

}  // namespace nvio
