#include "log.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>

#include "../record/trace_format.h"

namespace nvio {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kMostRanks = 1 << 20;
constexpr double kMostSeconds = 1e9;
constexpr std::size_t kWords = 4;  // offset, length, start, end

double time_of(const Json& json) {
  const auto seconds = json.get<double>();
  if (!(seconds >= 0 && seconds <= kMostSeconds)) throw std::invalid_argument("a time");
  return seconds;
}

// Of the MPI-IO level (not `exact`) an offset may be -1: not known. A length there is an int in
// which 2 GiB and more are another number.
void add_calls(const Json& words, bool writes, bool exact, std::vector<DarshanCall>& calls) {
  if (words.size() % kWords != 0) throw std::invalid_argument("a call");
  for (std::size_t at = 0; at < words.size(); at += kWords) {
    const auto offset = words[at].get<std::int64_t>();
    const auto length = words[at + 1].get<std::int64_t>();
    const DarshanCall call{writes, static_cast<std::uint64_t>(std::max<std::int64_t>(offset, 0)),
                           exact ? static_cast<std::uint64_t>(length) : 0, time_of(words[at + 2]),
                           time_of(words[at + 3])};
    if (call.length > kMostTransfer || call.offset > kMostOffset || call.end < call.start) {
      throw std::invalid_argument("a call");
    }
    calls.push_back(call);
  }
}

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  DarshanLog read() {
    log_.ranks = json_.at("ranks").get<std::uint32_t>();
    if (log_.ranks == 0 || log_.ranks > kMostRanks) throw std::invalid_argument("ranks");
    log_.seconds = time_of(json_.at("seconds"));
    log_.partial = json_.at("partial").get<std::map<std::string, bool>>();
    for (const Json& name : json_.at("names")) {
      file_of(name.at(0)).path = name.at(1).get<std::string>();
    }
    counters("mpiio", &DarshanFile::mpiio);
    counters("posix", &DarshanFile::posix);
    for (const Json& file : json_.at("streams")) file_of(file).is_streamed = true;
    calls("dxt_posix", &DarshanFile::posix_calls);
    calls("dxt_mpiio", &DarshanFile::mpiio_calls);
    const auto mounts = json_.at("mounts").get<std::vector<std::pair<std::string, std::string>>>();
    for (DarshanFile& file : log_.files) {
      std::size_t longest = 0;
      for (const auto& [point, type] : mounts) {
        const std::string inside = point == "/" ? point : point + "/";
        if (!file.path.starts_with(inside) || point.size() < longest) continue;
        longest = point.size();
        file.file_system = type;
      }
    }
    return std::move(log_);
  }

 private:
  DarshanFile& file_of(const Json& id) {
    const auto [place, is_new] = places_.emplace(id.get<std::uint64_t>(), log_.files.size());
    if (is_new) log_.files.emplace_back().path = "file " + std::to_string(place->first);
    return log_.files[place->second];
  }

  std::int64_t rank_of(const Json& record, std::int64_t least) const {
    const auto rank = record.at("rank").get<std::int64_t>();
    if (rank < least || rank >= static_cast<std::int64_t>(log_.ranks)) {
      throw std::invalid_argument("a rank");
    }
    return rank;
  }

  void counters(const char* module, std::vector<DarshanCounters> DarshanFile::*kept) {
    for (const Json& record : json_.at(module)) {
      (file_of(record.at("file")).*kept)
          .push_back({rank_of(record, kAllRanks),
                      record.at("counters").get<std::map<std::string, double>>()});
    }
  }

  void calls(const char* module, DarshanCalls DarshanFile::*kept) {
    const bool exact = kept == &DarshanFile::posix_calls;
    for (const Json& record : json_.at(module)) {
      log_.hosts.insert(record.at("host").get<std::string>());
      auto& calls = (file_of(record.at("file")).*kept)[rank_of(record, 0)];
      add_calls(record.at("reads"), false, exact, calls);
      add_calls(record.at("writes"), true, exact, calls);
      std::stable_sort(calls.begin(), calls.end(), [](const DarshanCall& a, const DarshanCall& b) {
        return a.start < b.start;
      });
    }
  }

  const Json& json_;
  DarshanLog log_;
  std::unordered_map<std::uint64_t, std::size_t> places_;
};

}  // namespace

DarshanLog parse_darshan(std::string_view json) {
  try {
    const Json parsed = Json::parse(json);
    return Reader(parsed).read();
  } catch (const std::exception& error) {
    DarshanLog none;
    none.problem =
        std::string("the log is damaged: it tells of what cannot be (") + error.what() + ")";
    return none;
  }
}

}  // namespace nvio
