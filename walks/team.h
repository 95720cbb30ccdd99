// The ranks that work together: their grid, how they time themselves, agree on errors, and show
// progress. One Team a process, on MPI_COMM_WORLD; used by one thread.
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "grid.h"

namespace walks {

// An error that every rank knows: thrown by all of them at the same place, reported by rank 0.
class AgreedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Phase { open, read, shift, compute, write, sync, close, count };
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Phase::count)> kPhaseNames =
    {"open", "read", "shift", "compute", "write", "sync", "close"};

// What one rank did: wall seconds within each phase (what lies between them, waiting for others
// above all, is in no phase), calls and bytes of its reads and writes.
struct Tally {
  std::array<double, static_cast<std::size_t>(Phase::count)> seconds{};
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t read_calls = 0;
  std::uint64_t write_calls = 0;
};

class Team {
 public:
  Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  [[nodiscard]] MPI_Comm comm() const { return MPI_COMM_WORLD; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool leads() const { return rank_ == 0; }
  [[nodiscard]] const Grid& grid() const { return grid_; }
  [[nodiscard]] bool active() const { return rank_ < grid_.active(); }
  [[nodiscard]] int row() const { return rank_ / grid_.cols; }
  [[nodiscard]] int col() const { return rank_ % grid_.cols; }
  // The active ranks of this rank's grid row and column, ranked by column and by row; null if idle.
  [[nodiscard]] MPI_Comm row_comm() const { return row_comm_; }
  [[nodiscard]] MPI_Comm col_comm() const { return col_comm_; }

  // Threads for this rank's computing: `wanted`, or with 0 this node's cores over its ranks.
  int set_threads(int wanted);

  // Runs the action and times it. A thrown error is kept (the first one) until agree(): ranks in
  // the middle of collective work must go on together, or none of them would end. Meanwhile this
  // one computes nothing, and reads and writes nothing where it takes part: its memory may lack.
  void guard(Phase phase, const std::function<void()>& action);
  [[nodiscard]] bool failed() const { return !fault_.empty(); }

  // Collective: if any rank kept an error, throws the first such rank's as AgreedError everywhere.
  void agree();

  [[nodiscard]] Tally& tally() { return tally_; }

  // Shows on rank 0's standard error what is being done, if it takes more than two seconds.
  void begin(std::string what);
  void progress(double done);
  void set_quiet(bool quiet) { quiet_ = quiet; }

 private:
  using Clock = std::chrono::steady_clock;

  int rank_ = 0;
  int size_ = 1;
  Grid grid_;
  MPI_Comm row_comm_ = MPI_COMM_NULL;
  MPI_Comm col_comm_ = MPI_COMM_NULL;
  Tally tally_;
  std::string fault_;
  bool quiet_ = false;
  std::string doing_;
  Clock::time_point began_;
  Clock::time_point shown_;
  bool line_open_ = false;
};

// Throws std::runtime_error with MPI's own words if `code` is not MPI_SUCCESS.
void check(int code, const std::string& what);

}  // namespace walks
