#include <algorithm>
#include <optional>
#include <vector>

#include "cannon.h"
#include "cells.h"
#include "doomed_file.h"
#include "questions.h"
#include "store.h"

namespace walks {
namespace {

// The lengths found so far, in their file; walks of length 1, 2, 3, … are entered in that order.
class Lengths {
 public:
  Lengths(Team& team, MatrixFile& file, Pattern pattern)
      : team_(team), file_(file), pattern_(pattern) {}

  // Collective. Enters `length` where the region of that power has a walk and none was before.
  void enter(const Region& region, const std::byte* power, std::uint32_t power_cell,
             std::uint64_t length) {
    const std::uint32_t cell = file_.header().cell;
    team_.guard(Phase::compute, [&] {
      cells_.assign(static_cast<std::size_t>(region.cells() * cell), std::byte{0});
    });
    if (length > 1) file_.read(region, cells_.data(), pattern_);
    team_.guard(Phase::compute, [&] {
      for (std::int64_t i = 0; i < region.cells(); ++i) {
        if (get_cell(power, power_cell, i) == 0 || get_cell(cells_.data(), cell, i) != 0) continue;
        ++found_;
        if (length > largest(cell)) {
          throw std::runtime_error(
              "a shortest walk has length " + std::to_string(length) + ", and a cell of " +
              std::to_string(cell) + " byte(s) holds at most " + std::to_string(largest(cell)) +
              "; choose wider cells (--cell " + std::to_string(cell * 2) + ")");
        }
        set_cell(cells_.data(), cell, i, length);
        if (region.row0 + i / region.cols() != region.col0 + i % region.cols()) ++pairs_;
      }
    });
    file_.write(region, cells_.data(), pattern_);
  }

  struct Found {
    std::uint64_t entries = 0;
    std::uint64_t pairs = 0;  // of different vertices
  };
  // Collective: what all ranks entered since the last call.
  Found settle() {
    std::array<std::uint64_t, 2> counts = {found_, pairs_};
    MPI_Allreduce(MPI_IN_PLACE, counts.data(), 2, MPI_UINT64_T, MPI_SUM, team_.comm());
    found_ = 0;
    pairs_ = 0;
    return {counts[0], counts[1]};
  }

 private:
  Team& team_;
  MatrixFile& file_;
  Pattern pattern_;
  std::vector<std::byte> cells_;
  std::uint64_t found_ = 0;
  std::uint64_t pairs_ = 0;
};

}  // namespace

Plan plan_of_lengths(Grid grid, const Header& graph, std::uint32_t cell, const Access& access) {
  // A block's lengths are there beside its cells: the graph's at first, then of 1 byte.
  return Plan::fit(grid, static_cast<std::int64_t>(graph.n),
                   {graph.cell, graph.cell, graph.cell + cell}, access.pattern == Pattern::shift,
                   access.memory);
}

LengthsSummary shortest_lengths(Team& team, MatrixFile& graph, std::uint64_t longest,
                                std::uint32_t cell, std::uint64_t tile, const Access& access,
                                const std::string& output) {
  Header header = graph.header();
  header.kind = Kind::kLengths;
  header.power = 0;
  header.cell = cell;
  header.tile = tile;
  header.saturated = false;
  Header power_header = graph.header();
  power_header.cell = 1;
  power_header.tile = tile;

  DoomedFile partial(output + ".partial", team.leads());
  const DoomedFile scratch0(output + ".scratch0", team.leads());
  const DoomedFile scratch1(output + ".scratch1", team.leads());
  MatrixFile lengths_file = MatrixFile::create(team, partial.path(), header, false);
  Lengths lengths(team, lengths_file, access.pattern);
  LengthsSummary summary;

  const Plan plan = plan_of_lengths(team.grid(), graph.header(), cell, access);
  std::vector<std::byte> cells;
  for (std::int64_t d = 0; d < plan.down; ++d) {
    for (std::int64_t a = 0; a < plan.across; ++a) {
      const Region region = team.active() ? plan.out(d, a, team.row(), team.col()) : Region{};
      team.guard(Phase::read, [&] {
        cells.resize(static_cast<std::size_t>(region.cells() * graph.header().cell));
      });
      graph.read(region, cells.data(), access.pattern);
      lengths.enter(region, cells.data(), graph.header().cell, 1);
      team.agree();
    }
  }
  Lengths::Found found = lengths.settle();
  summary.connected = found.pairs;
  summary.longest = found.pairs > 0 ? 1 : 0;

  const bool scratch_closes = access.handover == Handover::sync;
  std::optional<MatrixFile> before;
  // A shortest walk of length k + 1 begins with a shortest walk of length k: once a power finds
  // nothing new, no later one does.
  std::uint64_t length = 2;
  for (; found.entries > 0 && (longest == 0 || length <= longest); ++length) {
    team.begin("walks of length " + std::to_string(length));
    lengths_file.hand_over(access.handover);
    MatrixFile product = MatrixFile::create(team, (length % 2 == 0 ? scratch0 : scratch1).path(),
                                            power_header, scratch_closes);
    Store store(team, product, access.pattern, 1);
    multiply(team, plan, access.pattern, before ? *before : graph, graph,
             [&](const Region& region, Accumulator& block) {
               store.put(region, block);
               lengths.enter(region, store.cells(), 1, length);
             });
    ++summary.products;
    found = lengths.settle();
    summary.connected += found.pairs;
    if (found.pairs > 0) summary.longest = length;
    if (before) before->close();
    before.reset();
    product.hand_over(access.handover);
    before.emplace(std::move(product));
  }
  if (before) before->close();
  summary.complete = found.entries == 0;
  lengths_file.set_power(summary.complete ? 0 : length - 1);
  lengths_file.finish();
  team.guard(Phase::close, [&] { partial.keep_as(output); });
  team.agree();
  return summary;
}

}  // namespace walks
