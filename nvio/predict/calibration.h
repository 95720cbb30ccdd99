// What calls on a file system and in a store cost, as `nvio calibrate` measured it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace nvio {

// fresh_read: of bytes that the file did not have when it was opened, a hole or just written.
// cached_new: of a whole block that the store did not hold yet. piece_read, piece_write: of one of
// many pieces in the store that are moved by one call.
enum class Way : std::uint8_t {
  read,
  write,
  fresh_read,
  cached_read,
  cached_write,
  cached_new,
  piece_read,
  piece_write,
};
constexpr const char* kWayNames[] = {"read",         "write",      "fresh_read", "cached_read",
                                     "cached_write", "cached_new", "piece_read", "piece_write"};
constexpr std::size_t kWays = 8;

// Seconds: the median of several measurements, and how far most of them lie apart.
struct Range {
  double low = 0;
  double median = 0;
  double high = 0;
};

// Of one call of `bytes` while so many clients do the same.
struct CostPoint {
  Way way{};
  std::uint64_t bytes = 0;
  std::uint32_t clients = 1;
  Range seconds;
};

struct Calibration {
  std::string folder;
  std::string file_system;  // type and source of its mount
  std::string store;
  std::string store_file_system;  // where it was measured; empty of earlier versions
  std::vector<CostPoint> points;
  Range close;  // of a file just written to
  Range sync;   // fsync of a file just written to
  Range join;   // what a process's first open takes with the cache, beyond a plain open
};

enum class Case : std::uint8_t { low, median, high };

// What calls cost in one of the cases.
class Costs {
 public:
  Costs(const Calibration& calibration, Case which) : calibration_(calibration), case_(which) {}
  // Seconds of one call while so many clients do the like: linear in bytes and in clients between
  // what was measured, and beyond it with the slope of the last two.
  double transfer(Way way, std::uint64_t bytes, std::uint32_t clients) const;
  // How much longer than in the median case such a call takes: what was recorded may take so much
  // longer another time.
  double drift(Way way, std::uint64_t bytes, std::uint32_t clients) const;
  double close() const { return pick(calibration_.close, case_); }
  double sync() const { return pick(calibration_.sync, case_); }
  double join() const { return pick(calibration_.join, case_); }

 private:
  static double pick(const Range& range, Case which);
  double in_case(Case which, Way way, std::uint64_t bytes, std::uint32_t clients) const;

  const Calibration& calibration_;
  Case case_;
  // What was asked before: a trace has few lengths, and many calls of each.
  mutable std::map<std::tuple<Case, Way, std::uint64_t, std::uint32_t>, double> known_;
};

std::string as_json(const Calibration& calibration);
// Whole or not at all: an earlier one stays where this cannot be written.
bool write_calibration(const Calibration& calibration, const std::string& path);
// A sentence in `problem`, and false, when the text is no calibration.
bool parse_calibration(const std::string& text, Calibration& calibration, std::string& problem);

}  // namespace nvio
