#include "view.h"

#include <algorithm>

namespace nvio {

std::optional<View> View::of(const TypeMap& filetype, std::uint64_t displacement) {
  if (filetype.runs.empty() || filetype.extent <= 0) return std::nullopt;
  Tile tile;
  tile.extent = static_cast<std::uint64_t>(filetype.extent);
  tile.runs.reserve(filetype.runs.size());
  tile.before.reserve(filetype.runs.size());
  std::int64_t end = 0;
  for (const TypeMap::Run& run : filetype.runs) {
    if (run.offset < end || run.length <= 0 || run.length > INT64_MAX - run.offset) {
      return std::nullopt;
    }
    end = run.offset + run.length;
    tile.before.push_back(tile.size);
    tile.runs.push_back(
        {static_cast<std::uint64_t>(run.offset), static_cast<std::uint64_t>(run.length)});
    tile.size += tile.runs.back().length;
  }
  if (end - filetype.runs.front().offset > filetype.extent) return std::nullopt;
  return View(std::make_shared<const Tile>(std::move(tile)), displacement);
}

View View::from(std::uint64_t displacement) const { return {tile_, displacement}; }

bool View::has_tiles_of(const View& other) const {
  return tile_ == other.tile_ ||
         (tile_->extent == other.tile_->extent && tile_->runs == other.tile_->runs);
}

std::size_t View::run_at(std::uint64_t byte_of_tile) const {
  const auto after = std::ranges::upper_bound(tile_->before, byte_of_tile);
  return static_cast<std::size_t>(after - tile_->before.begin()) - 1;
}

std::optional<std::uint64_t> View::offset_of(std::uint64_t position) const {
  const std::size_t run = run_at(position % tile_->size);
  const unsigned __int128 offset =
      static_cast<unsigned __int128>(position / tile_->size) * tile_->extent + displacement_ +
      tile_->runs[run].offset + (position % tile_->size - tile_->before[run]);
  if (offset > INT64_MAX) return std::nullopt;
  return static_cast<std::uint64_t>(offset);
}

View::Walk::Walk(const View& view, std::uint64_t position, std::uint64_t length)
    : view_(view),
      left_(length),
      tile_(view.displacement_ + position / view.tile_->size * view.tile_->extent),
      index_(view.run_at(position % view.tile_->size)),
      within_(position % view.tile_->size - view.tile_->before[index_]) {}

std::uint64_t View::Walk::next(std::vector<FileRun>& runs, std::size_t most) {
  runs.clear();
  std::uint64_t bytes = 0;
  while (left_ != 0) {
    const FileRun& run = view_.tile_->runs[index_];
    const std::uint64_t offset = tile_ + run.offset + within_;
    const bool joins = !runs.empty() && runs.back().end() == offset;
    if (!joins && runs.size() == most) break;
    const std::uint64_t length = std::min(left_, run.length - within_);
    if (joins) {
      runs.back().length += length;
    } else {
      runs.push_back({offset, length});
    }
    bytes += length;
    left_ -= length;
    within_ += length;
    if (within_ < run.length) break;
    within_ = 0;
    if (++index_ == view_.tile_->runs.size()) {
      index_ = 0;
      tile_ += view_.tile_->extent;
    }
  }
  return bytes;
}

}  // namespace nvio
