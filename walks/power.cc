#include "power.h"

#include <bit>
#include <chrono>
#include <optional>

#include "cannon.h"
#include "doomed_file.h"
#include "store.h"

namespace walks {
namespace {

using Clock = std::chrono::steady_clock;

Tally operator-(Tally after, const Tally& before) {
  for (std::size_t i = 0; i < after.seconds.size(); ++i) after.seconds[i] -= before.seconds[i];
  after.bytes_read -= before.bytes_read;
  after.bytes_written -= before.bytes_written;
  after.read_calls -= before.read_calls;
  after.write_calls -= before.write_calls;
  return after;
}

}  // namespace

std::vector<std::uint64_t> schedule_of(std::uint64_t exponent, Schedule schedule) {
  std::vector<std::uint64_t> exponents;
  if (schedule == Schedule::steps) {
    for (std::uint64_t e = 2; e <= exponent; ++e) exponents.push_back(e);
    return exponents;
  }
  std::uint64_t reached = 1;
  for (int bit = static_cast<int>(std::bit_width(exponent)) - 2; bit >= 0; --bit) {
    exponents.push_back(reached *= 2);
    if ((exponent >> bit & 1) != 0) exponents.push_back(++reached);
  }
  return exponents;
}

std::uint64_t power_of(const MatrixFile& input, std::uint64_t exponent) {
  std::uint64_t power = 0;
  if (!__builtin_mul_overflow(input.header().power, exponent, &power)) return power;
  throw AgreedError(input.path() + " holds power " + std::to_string(input.header().power) +
                    "; the power " + std::to_string(exponent) + " of that exceeds 64 bits");
}

std::vector<ProductRecord> raise(Team& team, MatrixFile& input, const PowerRequest& request,
                                 const Access& access, const std::string& output) {
  Header header = input.header();
  header.cell = request.cell;
  header.tile = request.tile;
  const std::uint64_t base = input.header().power;
  header.power = power_of(input, request.exponent);

  const bool scratch_closes = access.handover == Handover::sync;  // else it must survive a close
  DoomedFile partial(output + ".partial", team.leads());
  DoomedFile scratch0(output + ".scratch0", team.leads());
  DoomedFile scratch1(output + ".scratch1", team.leads());
  std::vector<ProductRecord> records;
  bool saturated = input.header().saturated;

  if (request.exponent == 1) {
    team.begin("copying " + input.path());
    MatrixFile result = MatrixFile::create(team, partial.path(), header, request.discard);
    saturated |= copy(team, input, result, access.pattern, access.memory, request.saturate, false);
    result.set_saturated(saturated);
    result.finish();
  }

  std::optional<MatrixFile> before;  // the power reached so far; nothing: the input itself
  std::uint64_t reached = 1;
  for (const std::uint64_t exponent : schedule_of(request.exponent, request.schedule)) {
    const auto start = Clock::now();
    const Tally tally = team.tally();
    const bool last = exponent == request.exponent;
    const bool scratch_turn = records.size() % 2 == 0;
    const std::string& path = last           ? partial.path()
                              : scratch_turn ? scratch0.path()
                                             : scratch1.path();
    MatrixFile product =
        MatrixFile::create(team, path, header, last ? request.discard : scratch_closes);
    MatrixFile& left = before ? *before : input;
    MatrixFile& right = exponent == 2 * reached ? left : input;
    const CellWidths read{left.header().cell, right.header().cell, header.cell};
    const Plan plan =
        Plan::fit(team.grid(), input.n(), read, access.pattern == Pattern::shift, access.memory);
    // Each tile reads its rows and columns anew: whoever waits for that should know the reason.
    const std::string tiles = std::to_string(plan.down) + " x " + std::to_string(plan.across);
    team.begin("power " + std::to_string(base * exponent) + " of " + std::to_string(header.power) +
               (plan.down * plan.across > 1 ? " in " + tiles + " tiles that fit --memory" : ""));
    Store store(team, product, access.pattern, largest(header.cell));
    multiply(team, plan, access.pattern, left, right,
             [&](const Region& region, Accumulator& block) { store.put(region, block); });
    saturated |= store.settle(base * exponent, request.saturate);
    if (before) before->close();
    before.reset();
    if (last) {
      product.set_saturated(saturated);
      product.finish();
    } else {
      product.hand_over(access.handover);
      before.emplace(std::move(product));
    }
    reached = exponent;
    records.push_back({exponent, std::chrono::duration<double>(Clock::now() - start).count(),
                       team.tally() - tally});
  }
  if (!request.discard) {
    team.guard(Phase::close, [&] { partial.keep_as(output); });
    team.agree();
  }
  return records;
}

}  // namespace walks
