#include "view.h"

#include <algorithm>

namespace nvio {

std::optional<View> View::of(const TypeMap& filetype, std::uint64_t displacement) {
  if (filetype.runs.empty() || filetype.extent <= 0) return std::nullopt;
  View view;
  view.displacement_ = displacement;
  view.extent_ = static_cast<std::uint64_t>(filetype.extent);
  view.runs_.reserve(filetype.runs.size());
  view.before_.reserve(filetype.runs.size());
  std::int64_t end = 0;
  for (const TypeMap::Run& run : filetype.runs) {
    if (run.offset < end) return std::nullopt;
    end = run.offset + run.length;
    view.before_.push_back(view.size_);
    view.runs_.push_back(
        {static_cast<std::uint64_t>(run.offset), static_cast<std::uint64_t>(run.length)});
    view.size_ += view.runs_.back().length;
  }
  if (end > filetype.runs.front().offset + filetype.extent) return std::nullopt;
  return view;
}

std::size_t View::run_at(std::uint64_t byte_of_tile) const {
  const auto after = std::upper_bound(before_.begin(), before_.end(), byte_of_tile);
  return static_cast<std::size_t>(after - before_.begin()) - 1;
}

std::optional<std::uint64_t> View::offset_of(std::uint64_t position) const {
  const std::size_t run = run_at(position % size_);
  const unsigned __int128 offset = static_cast<unsigned __int128>(position / size_) * extent_ +
                                   displacement_ + runs_[run].offset +
                                   (position % size_ - before_[run]);
  if (offset > INT64_MAX) return std::nullopt;
  return static_cast<std::uint64_t>(offset);
}

View::Walk::Walk(const View& view, std::uint64_t position, std::uint64_t length)
    : view_(view),
      left_(length),
      tile_(view.displacement_ + position / view.size_ * view.extent_),
      index_(view.run_at(position % view.size_)),
      within_(position % view.size_ - view.before_[index_]) {}

std::uint64_t View::Walk::next(std::vector<FileRun>& runs, std::size_t most) {
  runs.clear();
  std::uint64_t bytes = 0;
  while (left_ != 0) {
    const FileRun& run = view_.runs_[index_];
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
    if (++index_ == view_.runs_.size()) {
      index_ = 0;
      tile_ += view_.extent_;
    }
  }
  return bytes;
}

}  // namespace nvio
