#include "team.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace walks {

void check(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  std::string words(text.data(), static_cast<std::size_t>(length));
  // MPICH prints a stack; its last line says what the system said.
  if (const auto line = words.find_last_of('\n'); line != std::string::npos) {
    words = words.substr(line + 1);
  }
  throw std::runtime_error(what + ": " + words);
}

Team::Team() {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  grid_ = Grid::of(size_);
  MPI_Comm_split(MPI_COMM_WORLD, active() ? row() : MPI_UNDEFINED, rank_, &row_comm_);
  MPI_Comm_split(MPI_COMM_WORLD, active() ? col() : MPI_UNDEFINED, rank_, &col_comm_);
}

Team::~Team() {
  if (row_comm_ != MPI_COMM_NULL) MPI_Comm_free(&row_comm_);
  if (col_comm_ != MPI_COMM_NULL) MPI_Comm_free(&col_comm_);
}

int Team::set_threads(int wanted) {
  if (wanted == 0) {
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
    int ranks = 1;
    MPI_Comm_size(node, &ranks);
    MPI_Comm_free(&node);
    // Launchers bind ranks to cores; what this process may use then is its own share already, so
    // the node's cores are counted, and the binding bounds the answer.
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    const int share = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) / ranks;
    wanted = std::max(1, known ? std::min(share, CPU_COUNT(&allowed)) : share);
  }
  omp_set_num_threads(wanted);
  return wanted;
}

void Team::guard(Phase phase, const std::function<void()>& action) {
  if (failed() && phase == Phase::compute) return;
  const auto start = Clock::now();
  try {
    action();
  } catch (const std::bad_alloc&) {
    if (!failed()) fault_ = "out of memory; lower --memory or use more ranks";
  } catch (const std::exception& error) {
    if (!failed()) fault_ = error.what();
  }
  tally_.seconds[static_cast<std::size_t>(phase)] +=
      std::chrono::duration<double>(Clock::now() - start).count();
}

void Team::agree() {
  const int mine = failed() ? rank_ : size_;
  int first = 0;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == size_) return;
  int length = static_cast<int>(fault_.size());
  MPI_Bcast(&length, 1, MPI_INT, first, MPI_COMM_WORLD);
  fault_.resize(static_cast<std::size_t>(length));
  MPI_Bcast(fault_.data(), length, MPI_CHAR, first, MPI_COMM_WORLD);
  const std::string words = std::move(fault_);
  fault_.clear();
  throw AgreedError(words);
}

void Team::begin(std::string what) {
  doing_ = std::move(what);
  began_ = Clock::now();
  shown_ = began_;
}

void Team::progress(double done) {
  if (!leads() || quiet_) return;
  const auto now = Clock::now();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const std::chrono::seconds pause(terminal || shown_ == began_ ? 2 : 10);
  const bool ends = done >= 1 && line_open_;
  if (now - shown_ < pause && !ends) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - began_).count();
  std::fprintf(stderr, "%swalks: %s, %.0f %%, %.0f s%s", terminal ? "\r" : "", doing_.c_str(),
               100 * done, seconds, terminal && done < 1 ? "\x1b[K" : "\n");
  line_open_ = terminal && done < 1;
}

}  // namespace walks
