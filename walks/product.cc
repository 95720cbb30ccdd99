#include "product.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <stdexcept>

#include "cells.h"

namespace walks {
namespace {

// C is computed in strips of at most this many rows, whose s32 results stay in cache until they are
// added or widened; oneDNN's kernels want several hundred.
constexpr std::int64_t kStripRows = 512;

// Strips of equal height, as many for each thread. A thread computes its strips alone (oneDNN does
// not start threads within a parallel region): one barrier a product instead of one a call, which
// is what a busy machine punishes.
std::int64_t strip_rows(std::int64_t rows) {
  const std::int64_t threads = omp_get_max_threads();
  const std::int64_t rounds = (rows + threads * kStripRows - 1) / (threads * kStripRows);
  return std::max<std::int64_t>(1, (rows + rounds * threads - 1) / (rounds * threads));
}

// Calls action(first row, rows) for every strip, on all threads; rethrows the first error. A single
// strip is no parallel region: there oneDNN starts threads itself.
template <typename Action>
void for_strips(std::int64_t rows, std::int64_t height, const Action& action) {
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic) if (rows > height)
  for (std::int64_t row = 0; row < rows; row += height) {
    try {
      action(row, std::min(height, rows - row));
    } catch (...) {
#pragma omp critical
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

// All the cells' bits together: at least the largest cell, less than twice it, and quick to find.
template <typename Cell>
std::uint64_t bits_of(const std::byte* cells, std::int64_t count) {
  const auto* values = reinterpret_cast<const Cell*>(cells);
  Cell bits = 0;
#pragma omp parallel for simd reduction(| : bits) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) bits = static_cast<Cell>(bits | values[i]);
  return bits;
}

template <typename Cell>
void cut_plane(const std::byte* cells, std::int64_t count, int shift, std::uint8_t* plane) {
  const auto* values = reinterpret_cast<const Cell*>(cells);
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    plane[i] = static_cast<std::uint8_t>(values[i] >> shift & 127);
  }
}

// sums += terms << shift, where all of it fits.
void add_shifted(std::int32_t* sums, const std::int32_t* terms, std::int64_t count, int shift) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    sums[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[i]) +
                                        (static_cast<std::uint32_t>(terms[i]) << shift));
  }
}

// The first sum that exceeds `most`, with its index. Mostly there is none.
template <typename Sum>
std::optional<std::pair<std::int64_t, Sum>> first_above(const Sum* sums, std::int64_t count,
                                                        Sum most) {
  int any = 0;
#pragma omp parallel for simd reduction(| : any) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) any |= static_cast<int>(sums[i] > most);
  if (any == 0) return std::nullopt;
  const Sum* const found = std::find_if(sums, sums + count, [&](Sum sum) { return sum > most; });
  return std::pair{found - sums, *found};
}

}  // namespace

int planes_for(std::uint64_t largest) {
  int planes = 1;
  while (planes * kPlaneBits < 64 && largest >> (planes * kPlaneBits) != 0) ++planes;
  return planes;
}

void Planes::load(const std::byte* cells, std::uint32_t width, std::int64_t rows,
                  std::int64_t cols) {
  rows_ = rows;
  cols_ = cols;
  borrowed_ = nullptr;
  const std::int64_t count = rows * cols;
  bound_ = with_cell(width, [&](auto cell) { return bits_of<decltype(cell)>(cells, count); });
  count_ = planes_for(bound_);
  if (width == 1 && count_ == 1) {
    borrowed_ = reinterpret_cast<const std::uint8_t*>(cells);
    return;
  }
  std::uint8_t* const planes = owned_.reserve(count * count_);
  for (int p = 0; p < count_; ++p) {
    with_cell(width, [&](auto cell) {
      cut_plane<decltype(cell)>(cells, count, p * kPlaneBits, planes + p * count);
    });
  }
}

const std::uint8_t* Planes::plane(int index) const {
  return borrowed_ != nullptr ? borrowed_ : owned_.data() + index * rows_ * cols_;
}

void Accumulator::reset(std::int64_t rows, std::int64_t cols) {
  rows_ = rows;
  cols_ = cols;
  has_narrow_ = false;
  has_wide_ = false;
  narrow_bound_ = 0;
  bound_ = 0;
  first_clamped_ = rows * cols;
}

void Accumulator::add(const Planes& a, const Planes& b) {
  if (a.rows() != rows_ || b.cols() != cols_ || a.cols() != b.rows()) {
    throw std::logic_error("blocks of unlike shapes multiplied");
  }
  if (rows_ == 0 || cols_ == 0 || a.cols() == 0 || a.bound() == 0 || b.bound() == 0) return;
  const long double grows_by = static_cast<long double>(a.bound()) *
                               static_cast<long double>(b.bound()) *
                               static_cast<long double>(a.cols());
  bound_ += grows_by;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const bool single = a.count() == 1 && b.count() == 1;
  const bool small = single || static_cast<long double>(narrow_bound_) + grows_by <= kMost;
  // No term of a small product exceeds it. Pairs of equal weight are summed in s32 before they are
  // widened: at most min(planes) of them.
  const auto term = static_cast<std::int64_t>(small ? a.bound() * b.bound() : 0);
  const std::int64_t most_terms =
      small ? kMost / term : kMostTerms / std::min(a.count(), b.count());
  for (std::int64_t k0 = 0; k0 < a.cols(); k0 += most_terms) {
    const std::int64_t k = std::min(most_terms, a.cols() - k0);
    if (small) {
      add_small(a, b, k0, k, static_cast<std::uint64_t>(term * k));
    } else {
      add_large(a, b, k0, k);
    }
  }
}

// Packs what is multiplied with strips of this height: several planes by a thread each, since one
// barrier is less than one a plane.
void Accumulator::pack(const Planes& b, std::int64_t k0, std::int64_t k, std::int64_t height,
                       std::int64_t lda) {
  for_strips(b.count(), 1, [&](std::int64_t plane, std::int64_t /*one*/) {
    const int q = static_cast<int>(plane);
    packed_.at(q).pack(b.plane(q) + k0 * cols_, k, cols_, height, lda);
  });
}

// What fits s32 stays there across calls, for as long as the true bounds allow: half the memory to
// go through than with 64-bit sums.
void Accumulator::add_small(const Planes& a, const Planes& b, std::int64_t k0, std::int64_t k,
                            std::uint64_t grows_by) {
  if (narrow_bound_ + grows_by > std::numeric_limits<std::int32_t>::max()) spill();
  narrow_bound_ += grows_by;
  std::int32_t* const all_sums = narrow_.reserve(rows_ * cols_);
  if (a.count() == 1 && b.count() == 1 && !has_narrow_) {  // nothing to add: one call does it all
    packed_.front().take(b.plane(0) + k0 * cols_, k, cols_);
    packed_.front().multiply(rows_, a.plane(0) + k0, a.cols(), all_sums);
    has_narrow_ = true;
    return;
  }
  const std::int64_t height = strip_rows(rows_);
  pack(b, k0, k, height, a.cols());
  std::int32_t* const all_terms = strips_.reserve(omp_get_max_threads() * height * cols_);
  for_strips(rows_, height, [&](std::int64_t row, std::int64_t rows) {
    std::int32_t* const terms = all_terms + omp_get_thread_num() * height * cols_;
    std::int32_t* const sums = all_sums + row * cols_;
    bool adds = has_narrow_;
    for (int p = 0; p < a.count(); ++p) {
      for (int q = 0; q < b.count(); ++q) {
        const int shift = (p + q) * kPlaneBits;
        // Nothing is lost: a term that is not zero is part of a sum that fits.
        if (shift > 30) continue;
        packed_.at(q).multiply(rows, a.plane(p) + row * a.cols() + k0, a.cols(),
                               adds ? terms : sums);
        if (adds) add_shifted(sums, terms, rows * cols_, shift);
        adds = true;
      }
    }
  });
  has_narrow_ = true;
}

void Accumulator::add_large(const Planes& a, const Planes& b, std::int64_t k0, std::int64_t k) {
  const std::int64_t height = strip_rows(rows_);
  pack(b, k0, k, height, a.cols());
  const std::int64_t strip = height * cols_;
  std::int32_t* const strips = strips_.reserve(2 * strip * omp_get_max_threads());
  std::uint64_t* const wide = wide_.reserve(rows_ * cols_);
  for_strips(rows_, height, [&](std::int64_t row, std::int64_t rows) {
    std::int32_t* const sums = strips + 2 * strip * omp_get_thread_num();
    std::int32_t* const terms = sums + strip;
    for (int weight = 0; weight <= a.count() + b.count() - 2; ++weight) {
      bool adds = false;
      for (int p = std::max(0, weight - b.count() + 1); p <= std::min(weight, a.count() - 1); ++p) {
        packed_.at(weight - p)
            .multiply(rows, a.plane(p) + row * a.cols() + k0, a.cols(), adds ? terms : sums);
        if (adds) add_shifted(sums, terms, rows * cols_, 0);
        adds = true;
      }
      widen(wide, row, rows, sums, weight * kPlaneBits, !has_wide_ && weight == 0);
    }
  });
  has_wide_ = true;
}

void Accumulator::spill() {
  if (!has_narrow_) return;
  has_narrow_ = false;
  narrow_bound_ = 0;
  std::uint64_t* const wide = wide_.reserve(rows_ * cols_);
  const std::int32_t* const sums = narrow_.data();
  const bool fresh = !has_wide_;
  for_strips(rows_, strip_rows(rows_), [&](std::int64_t row, std::int64_t rows) {
    widen(wide, row, rows, sums + row * cols_, 0, fresh);
  });
  has_wide_ = true;
}

// wide_ += terms << shift for some rows, clamped at 2^64 - 1. Terms are never negative. Several
// threads call this, for different rows. `fresh`: wide_ holds nothing yet, and the shift is 0.
void Accumulator::widen(std::uint64_t* all, std::int64_t row, std::int64_t rows,
                        const std::int32_t* terms, int shift, bool fresh) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  constexpr long double kSurelyFits = 9223372036854775808.0L;  // 2^63: half, against rounding
  std::uint64_t* const wide = all + row * cols_;
  const std::int64_t count = rows * cols_;
  if (fresh) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) wide[i] = static_cast<std::uint32_t>(terms[i]);
    return;
  }
  if (bound_ < kSurelyFits) {
    // No sum exceeds 64 bits, so a shift past them can meet only zeros.
    if (shift > 63) return;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      wide[i] += static_cast<std::uint64_t>(static_cast<std::uint32_t>(terms[i])) << shift;
    }
    return;
  }
  std::int64_t first = count;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto term = static_cast<std::uint64_t>(static_cast<std::uint32_t>(terms[i]));
    if (term == 0) continue;
    const bool lost = shift > 63 || (shift > 0 && term >> (64 - shift) != 0);
    const std::uint64_t shifted = lost ? kMost : term << shift;
    if (lost || wide[i] > kMost - shifted) {
      wide[i] = kMost;
      first = std::min(first, i);
    } else {
      wide[i] += shifted;
    }
  }
  if (first == count) return;
#pragma omp critical
  first_clamped_ = std::min(first_clamped_, row * cols_ + first);
}

// Cells from sums, which may lie in the same memory. Sums are clamped below the cap or cut to it,
// so that they fit the cell.
template <typename Sum>
std::optional<Overflow> Accumulator::clamp(Sum* sums, std::byte* cells, std::uint32_t width,
                                           std::uint64_t cap) {
  const std::int64_t count = rows_ * cols_;
  const bool in_place = reinterpret_cast<std::byte*>(sums) == cells;
  if (in_place && bound_ <= static_cast<long double>(cap)) return std::nullopt;
  const Sum most = static_cast<Sum>(
      std::min<std::uint64_t>(cap, static_cast<std::uint64_t>(std::numeric_limits<Sum>::max())));
  // Looked for before the sums are cut, since they may be cut where they lie.
  const auto above = bound_ <= static_cast<long double>(cap)
                         ? std::nullopt
                         : first_above(static_cast<const Sum*>(sums), count, most);
  if (!in_place || above) {
    with_cell(width, [&](auto cell) {
      using Cell = decltype(cell);
      auto* const out = reinterpret_cast<Cell*>(cells);
#pragma omp parallel for simd schedule(static)
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Cell>(std::min(sums[i], most));
    });
  }
  if (!above) return std::nullopt;
  return Overflow{above->first / cols_, above->first % cols_,
                  static_cast<std::uint64_t>(above->second)};
}

Accumulator::Cells Accumulator::narrow(std::uint32_t width, std::uint64_t cap) {
  if (has_wide_) spill();
  const std::int64_t count = rows_ * cols_;
  const auto elsewhere = [&] { return cells_.reserve(count * static_cast<std::int64_t>(width)); };
  std::byte* cells = nullptr;
  std::optional<Overflow> first;
  if (has_wide_) {
    cells =
        width == sizeof(std::uint64_t) ? reinterpret_cast<std::byte*>(wide_.data()) : elsewhere();
    first = clamp(wide_.data(), cells, width, cap);
  } else if (has_narrow_) {
    cells =
        width == sizeof(std::int32_t) ? reinterpret_cast<std::byte*>(narrow_.data()) : elsewhere();
    first = clamp(narrow_.data(), cells, width, cap);
  } else {
    cells = elsewhere();
    std::memset(cells, 0, static_cast<std::size_t>(count) * width);
  }
  has_wide_ = has_narrow_ = false;
  if (first_clamped_ < count) {
    const Overflow clamped{first_clamped_ / cols_, first_clamped_ % cols_, std::nullopt};
    if (!first || first_clamped_ <= first->row * cols_ + first->col) first = clamped;
  }
  return {cells, first};
}

}  // namespace walks
