// A file's view as runs of bytes: what a rank's filetype shows, tile after tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "file_run.h"

namespace nvio {

// Where the bytes of a datatype lie.
struct TypeMap {
  struct Run {
    std::int64_t offset;  // from the origin of the type
    std::int64_t length;  // never 0
  };
  // In the order of the type map; a run that begins where the one before it ends was joined to it.
  std::vector<Run> runs;
  std::int64_t extent = 0;
};

class View {
 public:
  // Runs of a filetype that are kept for a view; 24 bytes each. A view of more is the MPI's.
  static constexpr std::size_t kMostRuns = 1 << 18;

  // Nothing where the runs are not in the file's order or overlap, in a tile or between two: MPI
  // allows none of that for writing.
  static std::optional<View> of(const TypeMap& filetype, std::uint64_t displacement);
  // The same tiles from another place on.
  View from(std::uint64_t displacement) const;

  // Whether all bytes that it shows lie side by side; then where they begin.
  bool is_one_run() const {
    return tile_->runs.size() == 1 && tile_->runs[0].length == tile_->extent;
  }
  std::uint64_t begin() const { return displacement_ + tile_->runs[0].offset; }

  // Of one tile, from its beginning; and how far the next one is.
  std::span<const FileRun> runs() const { return tile_->runs; }
  std::uint64_t extent() const { return tile_->extent; }
  std::uint64_t displacement() const { return displacement_; }
  bool has_tiles_of(const View& other) const;

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
  struct Tile {
    std::vector<FileRun> runs;
    std::vector<std::uint64_t> before;  // bytes of the tile in front of each
    std::uint64_t extent = 0;
    std::uint64_t size = 0;  // bytes that it shows
  };
  View(std::shared_ptr<const Tile> tile, std::uint64_t displacement)
      : tile_(std::move(tile)), displacement_(displacement) {}
  std::size_t run_at(std::uint64_t byte_of_tile) const;

  std::shared_ptr<const Tile> tile_;
  std::uint64_t displacement_;
};

}  // namespace nvio
