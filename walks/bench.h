// Times exact products against raw oneDNN.
#pragma once

#include <cstdint>

#include "record.h"

namespace walks {

// Square matrices of `size`, for several numbers of planes, `repeats` times each: raw oneDNN (one
// dnnl_gemm_u8s8s32 call, and the matmul primitive) and the exact product, in a rotating order.
// The raw calls multiply the same 7-bit operands; the exact product starts from cells and ends in
// cells: cutting into planes, all plane pairs, accumulation, the check for overflow. Raw seconds,
// no statistics. Checks a row of every product and throws std::runtime_error if it is wrong.
Json bench(std::int64_t size, int repeats);

}  // namespace walks
