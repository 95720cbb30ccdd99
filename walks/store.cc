#include "store.h"

#include "cells.h"
#include "grid.h"

namespace walks {

void Store::put(const Region& region, const Fill& fill) {
  cells_ = nullptr;
  team_.guard(Phase::compute, [&] {
    if (region.empty()) return;
    const auto [cells, overflow] = fill();
    cells_ = cells;
    if (overflow) {
      const auto index = static_cast<std::uint64_t>((region.row0 + overflow->row) * out_.n() +
                                                    region.col0 + overflow->col);
      if (index < first_) {
        first_ = index;
        value_ = overflow->value;
      }
    }
  });
  out_.write(region, cells_, pattern_);
}

void Store::put(const Region& region, Accumulator& block) {
  put(region, [&] { return block.narrow(out_.header().cell, cap_); });
}

bool Store::settle(std::uint64_t power, bool saturate) {
  std::uint64_t first = 0;
  MPI_Allreduce(&first_, &first, 1, MPI_UINT64_T, MPI_MIN, team_.comm());
  if (first == ~std::uint64_t{0}) return false;
  if (saturate) return true;
  // A cut cell is above a cap of at least 1, so 0 is free to mean "unknown".
  const std::uint64_t mine = first_ == first ? value_.value_or(0) : 0;
  std::uint64_t value = 0;
  MPI_Allreduce(&mine, &value, 1, MPI_UINT64_T, MPI_MAX, team_.comm());
  const Header& header = out_.header();
  const auto vertex = [&](std::uint64_t index) {
    return std::to_string(index + header.first_vertex);
  };
  const std::string cell = std::to_string(header.cell) + (header.cell > 1 ? " bytes" : " byte");
  const std::string wider =
      header.cell < 8 ? "choose wider cells (--cell " + std::to_string(header.cell * 2) + ") or "
                      : std::string();
  throw AgreedError("power " + std::to_string(power) + " overflows: cell (" +
                    vertex(first / header.n) + ", " + vertex(first % header.n) + ") is " +
                    (value == 0 ? "beyond 64 bits" : std::to_string(value)) + ", and a cell of " +
                    cell + " holds at most " + std::to_string(cap_) + "; " + wider +
                    "--saturate to keep the maximum there");
}

bool copy(Team& team, MatrixFile& from, MatrixFile& to, Pattern pattern, std::int64_t memory,
          bool saturate, bool no_loops) {
  const std::int64_t n = from.n();
  const std::uint32_t in = from.header().cell;
  const std::uint32_t out = to.header().cell;
  const Strips strips(n, team.size(), n * (in + out), memory);
  Store store(team, to, pattern, largest(out));
  std::vector<std::byte> cells;
  std::vector<std::byte> copied;
  for (std::int64_t round = 0; round < strips.rounds(); ++round) {
    const Region region = strips.of(team.rank(), round);
    team.guard(Phase::read, [&] { cells.resize(static_cast<std::size_t>(region.cells() * in)); });
    from.read(region, cells.data(), pattern);
    store.put(region, [&]() -> Accumulator::Cells {
      if (no_loops) clear_diagonal(cells.data(), in, region.row0, region.rows(), n);
      copied.resize(static_cast<std::size_t>(region.cells() * out));
      const Clipped clipped =
          convert_cells(cells.data(), in, copied.data(), out, region.cells(), largest(out));
      if (!clipped.any) return {copied.data(), std::nullopt};
      return {copied.data(), Overflow{clipped.first / n, clipped.first % n, clipped.value}};
    });
    team.agree();
    team.progress(static_cast<double>(round + 1) / static_cast<double>(strips.rounds()));
  }
  return store.settle(to.header().power, saturate);
}

}  // namespace walks
