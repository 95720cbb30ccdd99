// Exact products of blocks of non-negative integers on oneDNN's u8 x s8 -> s32 products.
//
// Every cell is cut into planes of 7 bits: with VNNI the instruction is exact for full bytes, but
// without it pairs of products are added in 16 bits and saturate; 2 * 127 * 127 fits. A plane pair
// (p, q) contributes its product shifted by 7 (p + q) bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "buffer.h"
#include "packed_bytes.h"

namespace walks {

inline constexpr int kPlaneBits = 7;
inline constexpr int kMostPlanes = (64 + kPlaneBits - 1) / kPlaneBits;

// How many terms of 127 * 127 an s32 holds: the longest K of one product.
inline constexpr std::int64_t kMostTerms = 0x7fffffff / (127 * 127);

// Planes that cells up to this value need; at least one.
[[nodiscard]] int planes_for(std::uint64_t largest);

// A dense row-major block as 7-bit planes. Keeps no reference to the cells, with one exception:
// cells of 1 byte that fit one plane are used where they lie, so they must outlive their use.
class Planes {
 public:
  // `cells`: rows * cols unsigned little-endian integers of `width` bytes (1, 2, 4, 8).
  void load(const std::byte* cells, std::uint32_t width, std::int64_t rows, std::int64_t cols);

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t cols() const { return cols_; }
  [[nodiscard]] int count() const { return count_; }
  // No cell exceeds this; it is less than twice the largest cell.
  [[nodiscard]] std::uint64_t bound() const { return bound_; }
  [[nodiscard]] const std::uint8_t* plane(int index) const;

 private:
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::uint64_t bound_ = 0;
  int count_ = 1;
  const std::uint8_t* borrowed_ = nullptr;
  Buffer<std::uint8_t> owned_;
};

// A cell that does not fit: row and column within the block.
struct Overflow {
  std::int64_t row = 0;
  std::int64_t col = 0;
  std::optional<std::uint64_t> value;  // unknown when it does not even fit 64 bits
};

// C += A B for one block C, held exactly up to 2^64 - 1; what exceeds that is clamped and known.
class Accumulator {
 public:
  // C = 0, of this shape. Keeps the memory of the block before.
  void reset(std::int64_t rows, std::int64_t cols);

  // a: rows x k, b: k x cols, for any k.
  void add(const Planes& a, const Planes& b);

  // The block as cells of `width` bytes, each clamped to `cap` (which must fit the width). This
  // ends the sum: the cells lie in its memory where they can, and live until the next reset().
  struct Cells {
    const std::byte* data;
    std::optional<Overflow> first;  // in row-major order, whose true value exceeds the cap
  };
  [[nodiscard]] Cells narrow(std::uint32_t width, std::uint64_t cap);

 private:
  void pack(const Planes& b, std::int64_t k0, std::int64_t k, std::int64_t height,
            std::int64_t lda);
  void add_small(const Planes& a, const Planes& b, std::int64_t k0, std::int64_t k,
                 std::uint64_t grows_by);
  void add_large(const Planes& a, const Planes& b, std::int64_t k0, std::int64_t k);
  template <typename Sum>
  std::optional<Overflow> clamp(Sum* sums, std::byte* cells, std::uint32_t width,
                                std::uint64_t cap);
  void spill();
  void widen(std::uint64_t* all, std::int64_t row, std::int64_t rows, const std::int32_t* terms,
             int shift, bool fresh);

  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  // C = narrow_ + wide_, of which either may be absent, meaning zeros.
  Buffer<std::int32_t> narrow_;
  Buffer<std::uint64_t> wide_;
  // While a product is added: the right operand's planes, and each thread's sums and terms.
  std::array<PackedBytes, kMostPlanes> packed_;
  Buffer<std::int32_t> strips_;
  Buffer<std::byte> cells_;
  bool has_narrow_ = false;
  bool has_wide_ = false;
  std::uint64_t narrow_bound_ = 0;  // no cell of narrow_ exceeds this
  long double bound_ = 0;           // no cell of C exceeds this
  std::int64_t first_clamped_ = 0;  // index of the first clamped cell, rows * cols if none
};

}  // namespace walks
