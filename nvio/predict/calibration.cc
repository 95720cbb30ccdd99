#include "calibration.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace nvio {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;  // 1 had no pieces

// A function that is linear between known points, and goes on as steeply as it ended, but never
// falls; below the first point it stays.
double linear(const std::map<double, double>& points, double at) {
  const auto above = points.lower_bound(at);
  if (above == points.begin()) return above->second;
  auto second = above;
  if (second == points.end()) --second;
  if (second == points.begin()) return second->second;
  const auto first = std::prev(second);
  const double slope = (second->second - first->second) / (second->first - first->first);
  if (above == points.end()) return second->second + std::max(0.0, slope) * (at - second->first);
  return first->second + slope * (at - first->first);
}

Json json_of(const Range& range) {
  return {{"low", range.low}, {"median", range.median}, {"high", range.high}};
}

Range range_of(const Json& json) {
  const Range range{json.at("low").get<double>(), json.at("median").get<double>(),
                    json.at("high").get<double>()};
  if (!(std::isfinite(range.high) && range.low >= 0 && range.low <= range.median &&
        range.median <= range.high)) {
    throw std::invalid_argument("low, median and high are not in order");
  }
  return range;
}

Way way_of(const std::string& name) {
  const auto* found = std::find(std::begin(kWayNames), std::end(kWayNames), name);
  if (found == std::end(kWayNames)) throw std::invalid_argument("unknown kind of call " + name);
  return static_cast<Way>(found - std::begin(kWayNames));
}

}  // namespace

double Costs::pick(const Range& range, Case which) {
  return which == Case::low ? range.low : which == Case::high ? range.high : range.median;
}

double Costs::in_case(Case which, Way way, std::uint64_t bytes, std::uint32_t clients) const {
  const auto [known, is_new] = known_.try_emplace({which, way, bytes, clients}, 0);
  if (!is_new) return known->second;
  std::map<std::uint32_t, std::map<double, double>> by_size;
  for (const CostPoint& point : calibration_.points) {
    if (point.way != way) continue;
    by_size[point.clients][static_cast<double>(point.bytes)] = pick(point.seconds, which);
  }
  std::map<double, double> by_clients;
  for (const auto& [count, sizes] : by_size) {
    by_clients[count] = linear(sizes, static_cast<double>(bytes));
  }
  return known->second = linear(by_clients, clients);
}

double Costs::transfer(Way way, std::uint64_t bytes, std::uint32_t clients) const {
  return in_case(case_, way, bytes, clients);
}

double Costs::drift(Way way, std::uint64_t bytes, std::uint32_t clients) const {
  const double median = in_case(Case::median, way, bytes, clients);
  return median > 0 ? in_case(case_, way, bytes, clients) / median : 1;
}

std::string as_json(const Calibration& calibration) {
  Json points = Json::array();
  for (const CostPoint& point : calibration.points) {
    points.push_back({{"call", kWayNames[static_cast<std::size_t>(point.way)]},
                      {"bytes", point.bytes},
                      {"clients", point.clients},
                      {"seconds", json_of(point.seconds)}});
  }
  const Json json{{"format", "nvio-calibration"},
                  {"version", kVersion},
                  {"folder", calibration.folder},
                  {"file_system", calibration.file_system},
                  {"store", calibration.store},
                  {"store_file_system", calibration.store_file_system},
                  {"close_seconds", json_of(calibration.close)},
                  {"sync_seconds", json_of(calibration.sync)},
                  {"join_seconds", json_of(calibration.join)},
                  {"calls", points}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool write_calibration(const Calibration& calibration, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A pipe or a terminal is written to, never replaced; so is what a link leads to, as /dev/stdout.
  const fs::file_status there = fs::symlink_status(path, error);
  const bool is_file = fs::is_regular_file(there) || !fs::exists(there);
  const std::string partial = is_file ? path + ".partial" : path;
  std::ofstream file(partial);
  file << as_json(calibration);
  file.close();
  if (!is_file) return file.good();
  if (file) fs::rename(partial, path, error);
  if (file && !error) return true;
  fs::remove(partial, error);
  return false;
}

bool parse_calibration(const std::string& text, Calibration& calibration, std::string& problem) {
  try {
    const Json json = Json::parse(text);
    const int version = json.at("version").get<int>();
    if (json.at("format") != "nvio-calibration" || version < 1 || version > kVersion) {
      problem = "it was made by another version of nvio; make one by `nvio calibrate`";
      return false;
    }
    Calibration read;
    read.folder = json.at("folder").get<std::string>();
    read.file_system = json.at("file_system").get<std::string>();
    read.store = json.at("store").get<std::string>();
    read.store_file_system = json.value("store_file_system", "");
    read.close = range_of(json.at("close_seconds"));
    read.sync = range_of(json.at("sync_seconds"));
    read.join = range_of(json.at("join_seconds"));
    bool present[kWays] = {};
    for (const Json& point : json.at("calls")) {
      const Way way = way_of(point.at("call").get<std::string>());
      present[static_cast<std::size_t>(way)] = true;
      read.points.push_back({way, point.at("bytes").get<std::uint64_t>(),
                             point.at("clients").get<std::uint32_t>(),
                             range_of(point.at("seconds"))});
      // At most as dear as a call of its own.
      const Way piece = way == Way::cached_read ? Way::piece_read : Way::piece_write;
      if (version == 1 && (way == Way::cached_read || way == Way::cached_write)) {
        present[static_cast<std::size_t>(piece)] = true;
        read.points.push_back(read.points.back());
        read.points.back().way = piece;
      }
    }
    if (!std::all_of(std::begin(present), std::end(present), [](bool is) { return is; })) {
      throw std::invalid_argument("a kind of call is missing");
    }
    calibration = std::move(read);
    return true;
  } catch (const std::exception& error) {
    problem = std::string("it is no calibration: ") + error.what();
    return false;
  }
}

}  // namespace nvio
