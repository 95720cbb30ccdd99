#include "advice.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "grounds.h"

namespace nvio {
namespace {

constexpr double kMatters = 0.05;     // of the run time: less is no reason to do anything
constexpr double kHintMatters = 0.1;  // of the run time with the default settings
// What replays and calibration do not know (the model's gaps, the machine's other work), as a
// factor either way: four of five single runs of claim C7's workloads lay within it.
constexpr double kDiscrepancy = 1.7;
constexpr std::size_t kAssumedShown = 8;  // lines for people

const char* name_of(Verdict verdict) {
  return verdict == Verdict::use     ? "use"
         : verdict == Verdict::avoid ? "do not use"
                                     : "makes no difference";
}

template <typename... Values>
std::string text(const char* format, Values... values) {
  char line[400];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

// With the cache over without it, in each case: both arms meet the same machine.
Verdict verdict_of(const std::vector<double>& ratios) {
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  if (*most < 1 - kMatters) return Verdict::use;
  if (*least > 1 + kMatters) return Verdict::avoid;
  return Verdict::indifferent;
}

std::string why_of(const Prediction& found) {
  const Replayed& did = found.details;
  if (did.calls_served == 0) {
    return "its calls are long, or fast already: the cache steps aside";
  }
  return text(
      "%.0f %% of its calls would be served from memory, for %.0f MiB read and %.0f MiB "
      "written in long pieces",
      100 * static_cast<double>(did.calls_served) / static_cast<double>(did.calls),
      static_cast<double>(did.fetched_bytes) / (1 << 20),
      static_cast<double>(did.written_back_bytes) / (1 << 20));
}

std::string advice_of(const Prediction& found) {
  const double times = found.plain / std::max(found.cached.median, 1e-9);
  switch (found.verdict) {
    case Verdict::use:
      return text("use the cache: the program would run %.1f times as fast, since ", times) +
             why_of(found);
    case Verdict::avoid:
      return text(
                 "do not use the cache (nvio_cache=off): the program would take %.2f times as "
                 "long, although ",
                 1 / times) +
             why_of(found);
    case Verdict::indifferent:
      break;
  }
  return "do not bother: with the cache or without, the program takes about as long; " +
         why_of(found);
}

}  // namespace

Prediction predict(const JobTrace& job, const Calibration& calibration, const Settings& settings) {
  Prediction found;
  found.problem = !job.problem.empty() ? job.problem : objection(job, calibration, settings.store);
  if (!found.problem.empty()) return found;
  found.assumed = job.assumed;
  found.plain = job.seconds;
  found.plain_io = recorded_seconds(job);
  const double rest = std::max(0.0, found.plain - found.plain_io);
  const auto run = [&](Case which, const Settings& chosen) {
    const Costs costs(calibration, which);
    Replayed replayed = replay(job, costs, chosen);
    if (found.problem.empty()) found.problem = replayed.problem;
    return replayed;
  };
  found.details = run(Case::median, settings);
  if (found.details.fetched_bytes + found.details.written_back_bytes != 0) {
    const std::string why = objection_to_costs(job, calibration);
    if (found.problem.empty()) found.problem = why;
  }
  if (!found.problem.empty()) return found;
  const double median = found.details.seconds;
  Settings plain = settings;
  plain.file.admit = Admit::never;
  std::vector<double> ratios = {(rest + median) / found.plain};
  double ends[2] = {};
  for (const Case which : {Case::low, Case::high}) {
    const double cached = run(which, settings).seconds;
    ends[which == Case::low ? 0 : 1] = cached;
    ratios.push_back((rest + cached) / (rest + run(which, plain).seconds));
  }
  // Dearer calls may lead the cache to do better: then the extremes stand the other way round.
  found.cached_io = {std::min({ends[0], ends[1], median}) / kDiscrepancy, median,
                     std::max({ends[0], ends[1], median}) * kDiscrepancy};
  found.cached = {rest + found.cached_io.low, rest + median, rest + found.cached_io.high};
  if (!found.problem.empty()) return found;
  found.verdict = verdict_of(ratios);
  found.advice = advice_of(found);

  double best = (1 - kHintMatters) * std::min(found.cached.median, found.plain);
  const auto consider = [&](const Settings& chosen, const char* hint) {
    const double seconds = rest + run(Case::median, chosen).seconds;
    if (seconds >= best) return;
    best = seconds;
    found.hints = {hint};
  };
  Settings chosen = settings;
  chosen.file.prefetch = Prefetch::whole;
  if (found.details.reads != 0) consider(chosen, "prefetch=whole");
  chosen = settings;
  chosen.file.admit = Admit::always;
  consider(chosen, "admit=always");
  if (found.verdict == Verdict::avoid && found.hints.empty()) found.hints = {"cache=off"};
  if (!found.hints.empty() && found.hints.front() != "cache=off") {
    found.advice += text("; with nvio_%s it would take %.2f s", found.hints.front().c_str(), best);
  }
  return found;
}

std::string as_text(const Prediction& prediction) {
  std::string all =
      text("recorded    %8.2f s, of which %.2f s from the first MPI-IO call to the last\n",
           prediction.plain, prediction.plain_io) +
      text("with nvio   %8.2f s  [%.2f, %.2f], of which %.2f s\n", prediction.cached.median,
           prediction.cached.low, prediction.cached.high, prediction.cached_io.median) +
      "advice      " + prediction.advice + "\n";
  const std::size_t shown = std::min(prediction.assumed.size(), kAssumedShown);
  for (std::size_t i = 0; i < shown; ++i) all += "assumed     " + prediction.assumed[i] + "\n";
  if (const std::size_t more = prediction.assumed.size() - shown; more != 0) {
    all += "            and " + std::to_string(more) + " more: --json tells them\n";
  }
  return all;
}

std::string as_json(const Prediction& prediction) {
  using Json = nlohmann::ordered_json;
  const auto range = [](const Range& of) {
    return Json{{"low", of.low}, {"median", of.median}, {"high", of.high}};
  };
  const Replayed& did = prediction.details;
  const Json json{{"recorded_seconds", prediction.plain},
                  {"recorded_io_seconds", prediction.plain_io},
                  {"cached_seconds", range(prediction.cached)},
                  {"cached_io_seconds", range(prediction.cached_io)},
                  {"verdict", name_of(prediction.verdict)},
                  {"hints", prediction.hints},
                  {"advice", prediction.advice},
                  {"assumed", prediction.assumed},
                  {"reads", did.reads},
                  {"read_hits", did.read_hits},
                  {"writes", did.writes},
                  {"writes_cached", did.writes_cached},
                  {"fetched_bytes", did.fetched_bytes},
                  {"written_back_bytes", did.written_back_bytes}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace nvio
