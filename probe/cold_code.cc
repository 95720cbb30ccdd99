// Code that has not run since the last switch between processes: what a middleware's path through
// hundreds of functions meets in the middle of a request, and what no hot loop shows.
//
// Two processes on one processor wake each other in turn. In every other batch each of them, once
// woken, calls every function of a large table once; the difference between such a batch and one
// without the calls is their cost, so that neither wake-up nor clock stands in it.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <new>
#include <utility>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

constexpr std::size_t kFunctions = 512;
constexpr std::size_t kLines = 1024;  // of 64 bytes: what the functions touch

struct alignas(64) Line {
  uint64_t word = 0;
};
using Data = std::array<Line, kLines>;

// A function of its own for each number, in a place of its own, with branches that depend on data.
template <std::size_t Number>
[[gnu::noinline, gnu::aligned(256)]] uint64_t Function(uint64_t value, Data& data) {
  uint64_t& word = data[(value + Number * 7) % kLines].word;
  if (word & 1U) {
    value = value * 6364136223846793005ULL + Number;
  } else {
    value ^= word >> (Number % 13);
  }
  if (value & 2U) word += value | 1U;
  Keep(value);
  return value;
}

using Signature = uint64_t (*)(uint64_t, Data&);

template <std::size_t... Numbers>
constexpr std::array<Signature, sizeof...(Numbers)> MakeTable(std::index_sequence<Numbers...>) {
  return {Function<Numbers>...};
}

// Not constant to the compiler: calls go through it as through a table of virtual functions.
std::array<Signature, kFunctions> table = MakeTable(std::make_index_sequence<kFunctions>());

uint64_t CallAll(uint64_t value, Data& data) {
  for (const Signature function : table) value = function(value, data);
  return value;
}

// What both processes see.
struct Shared {
  std::atomic<bool> calls = false;
  std::atomic<bool> stop = false;
};

class Pair {
 public:
  Pair() : there_(eventfd(0, 0)), back_(eventfd(0, 0)) {
    if (there_ < 0 || back_ < 0) ThrowErrno("cannot make an eventfd");
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) ThrowErrno("cannot map shared memory");
    shared_ = new (memory) Shared;
    PinTo(AllowedCpus().front());  // the partner inherits it
    partner_ = fork();
    if (partner_ < 0) ThrowErrno("cannot fork");
    if (partner_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Live();
      _exit(0);
    }
  }
  ~Pair() {
    shared_->stop = true;
    eventfd_write(there_, 1);
    waitpid(partner_, nullptr, 0);
    munmap(shared_, sizeof(Shared));
    close(there_);
    close(back_);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // Mean nanoseconds of a round: both wake each other once, and call everything once if asked to.
  double Round(uint64_t rounds, bool calls) {
    shared_->calls = calls;
    const int64_t start = Now();
    for (uint64_t i = 0; i < rounds; ++i) {
      eventfd_t value = 0;
      eventfd_write(there_, 1);
      eventfd_read(back_, &value);
      if (calls) value_ = CallAll(value_, data_);
    }
    return static_cast<double>(Now() - start) / static_cast<double>(rounds);
  }

 private:
  void Live() {
    while (true) {
      eventfd_t value = 0;
      eventfd_read(there_, &value);
      if (shared_->stop) return;
      if (shared_->calls) value_ = CallAll(value_, data_);
      eventfd_write(back_, 1);
    }
  }

  const int there_;
  const int back_;
  Shared* shared_ = nullptr;
  pid_t partner_ = -1;
  uint64_t value_ = 1;
  Data data_ = {};
};

void Run(const Extent& extent) {
  Pair pair;
  pair.Round(extent.operations, true);  // not counted: page faults, translation
  pair.Round(extent.operations, false);
  std::vector<double> batches;
  for (uint32_t batch = 0; batch < extent.batches; ++batch) {
    const double with = pair.Round(extent.operations, true);
    const double without = pair.Round(extent.operations, false);
    batches.push_back((with - without) / (2.0 * kFunctions));
  }
  PrintCost("cold-code", "function that has not run since the last switch", extent, batches,
            {{"functions", kFunctions}});
}

}  // namespace

void AddColdCode(CLI::App& app) {
  static Extent extent{.batches = 20, .operations = 50};
  CLI::App* command = app.add_subcommand(
      "cold-code", "Calling functions that have not run since the last switch of processes.");
  AddExtent(*command, extent);
  command->callback([] { Run(extent); });
}

}  // namespace tare::probe
