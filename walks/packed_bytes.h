// Products of bytes on oneDNN, u8 x s8 -> s32, whose right operand is packed once for all of them.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <optional>

#include "buffer.h"

namespace walks {

// A right operand, packed where oneDNN has kernels for that. Its plain call, dnnl_gemm_u8s8s32,
// packs in each call anew and knows nothing of AMX, where it takes twice the time; it does what
// those kernels do not.
class PackedBytes {
 public:
  // bytes: k x cols, row-major, none above 127; they must outlive the products. `rows`, `lda`: of
  // the left operand in most of these.
  void pack(const std::uint8_t* bytes, std::int64_t k, std::int64_t cols, std::int64_t rows,
            std::int64_t lda);

  // For one product: oneDNN packs while it multiplies.
  void take(const std::uint8_t* bytes, std::int64_t k, std::int64_t cols);

  // C (rows x cols, contiguous) = A B, exact while its sums fit s32; A: rows x k within lines of
  // `lda`, none above 127. On all threads; within a parallel region on the calling one, and several
  // may call at once, each for its own C. There is no C += A B: the kernels do that in single
  // precision.
  void multiply(std::int64_t rows, const std::uint8_t* a, std::int64_t lda, std::int32_t* c) const;

 private:
  std::int64_t k_ = 0;
  std::int64_t cols_ = 0;
  const std::uint8_t* plain_ = nullptr;
  std::optional<dnnl::memory::desc> layout_;  // of what the kernels read, if there are any
  const std::uint8_t* read_ = nullptr;
  Buffer<std::uint8_t> packed_;
};

}  // namespace walks
