// The power of a matrix, product after product through files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "matrix_file.h"
#include "team.h"

namespace walks {

// In which order a power is reached.
enum class Schedule {
  steps,     // A², A³, A⁴, …: each product by A, as in the paper; p - 1 products
  squaring,  // by repeated squaring: at most 2 log2 p products
};

struct Access {
  Pattern pattern = Pattern::views;
  Handover handover = Handover::sync;
  std::int64_t memory = std::int64_t{1} << 30;  // bytes a rank
};

struct PowerRequest {
  std::uint64_t exponent = 2;
  std::uint32_t cell = 1;
  std::uint64_t tile = 0;
  bool saturate = false;
  Schedule schedule = Schedule::steps;
  bool discard = false;  // the result too goes into a scratch file: the paper's delete-on-close
};

// One product of the schedule, with what this rank did during it.
struct ProductRecord {
  std::uint64_t exponent = 0;  // of the input matrix, reached by this product
  double seconds = 0;
  Tally tally;
};

// The exponents that the schedule passes through after 1; each is the one before it, doubled (by a
// product with itself) or increased by 1 (by a product with the input).
[[nodiscard]] std::vector<std::uint64_t> schedule_of(std::uint64_t exponent, Schedule schedule);

// The power that the matrix holds, times the exponent. AgreedError if it exceeds 64 bits.
[[nodiscard]] std::uint64_t power_of(const MatrixFile& input, std::uint64_t exponent);

// Collective. Writes input^exponent to `output`, whole or not at all; beside it lie `.partial` and
// `.scratch0`, `.scratch1` meanwhile. A cell that does not fit is an AgreedError that names the
// power, the cell and its value, unless saturation is asked for: then every cell is the smaller of
// its true value and the largest that a cell holds (cutting is a homomorphism of the semiring of
// non-negative integers, so cutting the factors too changes nothing).
std::vector<ProductRecord> raise(Team& team, MatrixFile& input, const PowerRequest& request,
                                 const Access& access, const std::string& output);

}  // namespace walks
