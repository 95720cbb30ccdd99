// Cells of 1, 2, 4 or 8 bytes: unsigned little-endian integers, as they lie in memory and file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace walks {

static_assert(std::endian::native == std::endian::little,
              "cells are used in memory as they lie in the file");

// Calls action with a zero of the cell's type.
template <typename Action>
decltype(auto) with_cell(std::uint32_t width, Action action) {
  switch (width) {
    case 1:
      return action(std::uint8_t{});
    case 2:
      return action(std::uint16_t{});
    case 4:
      return action(std::uint32_t{});
    default:
      return action(std::uint64_t{});
  }
}

[[nodiscard]] inline std::uint64_t get_cell(const std::byte* cells, std::uint32_t width,
                                            std::int64_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, cells + index * width, width);
  return value;
}

inline void set_cell(std::byte* cells, std::uint32_t width, std::int64_t index,
                     std::uint64_t value) {
  std::memcpy(cells + index * width, &value, width);
}

// Makes the diagonal's cells zero in so many whole rows, from row `first` of n on.
inline void clear_diagonal(std::byte* cells, std::uint32_t width, std::int64_t first,
                           std::int64_t rows, std::int64_t n) {
  for (std::int64_t row = 0; row < rows; ++row) set_cell(cells, width, row * n + first + row, 0);
}

// The first cell that was cut to the cap, and what it had been.
struct Clipped {
  bool any = false;
  std::int64_t first = 0;
  std::uint64_t value = 0;
};

// Copies cells of one width into another, each cut to `cap`, which must fit the new width.
inline Clipped convert_cells(const std::byte* from, std::uint32_t from_width, std::byte* to,
                             std::uint32_t to_width, std::int64_t count, std::uint64_t cap) {
  Clipped clipped;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t value = get_cell(from, from_width, i);
    if (value > cap) {
      if (!clipped.any) clipped = {true, i, value};
      value = cap;
    }
    set_cell(to, to_width, i, value);
  }
  return clipped;
}

}  // namespace walks
