#include "cannon.h"

#include <array>
#include <vector>

namespace walks {
namespace {

// One operand as this rank sees it: where the panel for a step comes from.
//
// By reading: from the file, at every step. By shifting: every rank of a line (a grid row for the
// left operand, a column for the right one) reads its share of the panels once, those k that are
// its own place in the line modulo the line's length; at step t the panels that the line wants are
// a permutation of its ranks, so each sends one panel and receives one. Cannon passes blocks from
// neighbour to neighbour; here they go from the rank that read them straight to the one that wants
// them, which is the same traffic and also right on grids that are not square.
class Operand {
 public:
  Operand(Team& team, MatrixFile& file, Pattern pattern, MPI_Comm line, int place, int across,
          int length, int steps)
      : team_(team),
        file_(file),
        pattern_(pattern),
        line_(line),
        place_(place),
        across_(across),
        length_(length),
        steps_(steps) {}

  // Reads this rank's share of the `steps` panels, and makes room for what others will pass: from
  // then on, none may be missed. Does nothing unless panels are shifted.
  template <typename RegionOf>
  void read_share(const RegionOf& region_of) {
    if (pattern_ != Pattern::shift) return;
    share_.resize(static_cast<std::size_t>(steps_ / length_));
    for (int own = 0; own < steps_ / length_; ++own) {
      read(region_of(place_ + own * length_), share_[static_cast<std::size_t>(own)]);
    }
    team_.guard(Phase::shift, [&] {
      for (int step = 0; step < steps_; ++step) current_.reserve(size_of(region_of(step)));
    });
  }

  // The cells of the panel for step t, valid until the next call.
  template <typename RegionOf>
  const std::byte* panel(int t, const RegionOf& region_of) {
    const int wanted = (place_ + across_ + t) % steps_;
    if (pattern_ != Pattern::shift) {
      read(region_of(wanted), current_);
      return current_.data();
    }
    if (line_ == MPI_COMM_NULL) return nullptr;
    team_.guard(Phase::shift, [&] {
      // The rank of this line whose wanted panel is one of mine.
      const int taker = ((place_ - across_ - t) % length_ + length_) % length_;
      const int sent = (taker + across_ + t) % steps_;
      auto& out = share_[static_cast<std::size_t>(sent / length_)];
      const int giver = wanted % length_;
      current_.resize(size_of(region_of(wanted)));
      check(MPI_Sendrecv(out.data(), static_cast<int>(out.size()), MPI_BYTE, taker, 0,
                         current_.data(), static_cast<int>(current_.size()), MPI_BYTE, giver, 0,
                         line_, MPI_STATUS_IGNORE),
            "cannot pass a block on");
    });
    return current_.data();
  }

 private:
  [[nodiscard]] std::size_t size_of(const Region& region) const {
    return static_cast<std::size_t>(region.cells() * file_.header().cell);
  }

  void read(const Region& region, std::vector<std::byte>& cells) {
    team_.guard(Phase::read, [&] { cells.resize(size_of(region)); });
    file_.read(region, cells.data(), pattern_);
  }

  Team& team_;
  MatrixFile& file_;
  Pattern pattern_;
  MPI_Comm line_;
  int place_;   // in the line
  int across_;  // which of the parallel lines it is
  int length_;  // ranks in the line
  int steps_;
  std::vector<std::vector<std::byte>> share_;
  std::vector<std::byte> current_;
};

}  // namespace

void multiply(Team& team, const Plan& plan, Pattern pattern, MatrixFile& left, MatrixFile& right,
              const Sink& sink) {
  const Grid& grid = team.grid();
  const int steps = grid.steps();
  const int i = team.row();
  const int j = team.col();
  Operand left_panels(team, left, pattern, team.row_comm(), j, i, grid.cols, steps);
  Operand right_panels(team, right, pattern, team.col_comm(), i, j, grid.rows, steps);
  Planes left_planes;
  Planes right_planes;
  Accumulator block;
  const auto total = static_cast<double>(plan.down * plan.across * plan.panels());
  double done = 0;
  for (std::int64_t d = 0; d < plan.down; ++d) {
    for (std::int64_t a = 0; a < plan.across; ++a) {
      const Region out = team.active() ? plan.out(d, a, i, j) : Region{};
      block.reset(out.rows(), out.cols());
      for (std::int64_t s = 0; s < plan.depth; ++s) {
        const auto left_region = [&](int k) {
          return team.active() ? plan.left(d, i, s * steps + k) : Region{};
        };
        const auto right_region = [&](int k) {
          return team.active() ? plan.right(s * steps + k, a, j) : Region{};
        };
        left_panels.read_share(left_region);
        right_panels.read_share(right_region);
        if (pattern == Pattern::shift) team.agree();
        for (int t = 0; t < steps; ++t) {
          const std::byte* const left_cells = left_panels.panel(t, left_region);
          const std::byte* const right_cells = right_panels.panel(t, right_region);
          const std::int64_t k = left_region((i + j + t) % steps).cols();
          team.guard(Phase::compute, [&] {
            if (out.empty() || k == 0) return;
            left_planes.load(left_cells, left.header().cell, out.rows(), k);
            right_planes.load(right_cells, right.header().cell, k, out.cols());
            block.add(left_planes, right_planes);
          });
          team.progress(++done / total);
        }
      }
      sink(out, block);
      team.agree();
    }
  }
}

}  // namespace walks
