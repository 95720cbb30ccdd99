// Finished blocks of a matrix on their way into its file, and what did not fit its cells.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "matrix_file.h"
#include "product.h"
#include "team.h"

namespace walks {

class Store {
 public:
  // Cells above `cap` are cut to it.
  Store(Team& team, MatrixFile& out, Pattern pattern, std::uint64_t cap)
      : team_(team), out_(out), pattern_(pattern), cap_(cap) {}

  // Collective (as MatrixFile::write): writes the region with the cells that `fill` returns, and
  // keeps the first one that it had to cut. The cells outlive the call.
  using Fill = std::function<Accumulator::Cells()>;
  void put(const Region& region, const Fill& fill);

  // Collective: the product's block.
  void put(const Region& region, Accumulator& block);

  // The cells that the last put() wrote, row-major.
  [[nodiscard]] const std::byte* cells() const { return cells_; }

  // Collective: whether any rank had to cut a cell. Unless `saturate`, that is an AgreedError
  // which names the power and the first such cell in row-major order.
  bool settle(std::uint64_t power, bool saturate);

 private:
  Team& team_;
  MatrixFile& out_;
  Pattern pattern_;
  std::uint64_t cap_;
  const std::byte* cells_ = nullptr;
  std::uint64_t first_ = ~std::uint64_t{0};  // row * n + col
  std::optional<std::uint64_t> value_;       // unknown when beyond 64 bits
};

// Copies every cell into another width, layout or file. Collective. Returns whether cells were cut
// to what the narrower cell holds; unless `saturate`, that is an AgreedError.
// `no_loops` leaves the diagonal zero.
bool copy(Team& team, MatrixFile& from, MatrixFile& to, Pattern pattern, std::int64_t memory,
          bool saturate, bool no_loops);

}  // namespace walks
