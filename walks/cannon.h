// The product of two matrices in files, by all ranks together: Cannon's algorithm (A cellular
// computer to implement the Kalman filter algorithm, 1969), in which rank (i, j) of a q x q grid
// uses block k = i + j + t (mod q) of its row of A and its column of B at step t, so that no two
// ranks of a row or a column want the same block at once. On a grid that is not square K is cut
// into lcm(rows, cols) panels and the same rule holds (generalised Cannon).
#pragma once

#include <functional>

#include "grid.h"
#include "matrix_file.h"
#include "product.h"
#include "team.h"

namespace walks {

// Takes a finished block of C. Every rank is called for every tile in the same order, idle ranks
// and ranks without cells with an empty region, so it may do collective work.
using Sink = std::function<void(const Region& region, Accumulator& block)>;

// Collective. Errors of a rank are kept for Team::agree(), which is called after each tile.
void multiply(Team& team, const Plan& plan, Pattern pattern, MatrixFile& left, MatrixFile& right,
              const Sink& sink);

}  // namespace walks
