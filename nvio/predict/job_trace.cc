#include "job_trace.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace nvio {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

JobTrace refuse(const std::string& why) {
  JobTrace none;
  none.problem = why;
  return none;
}

// Reads what the command itself came to; a sentence when it is no ground.
std::string read_command(const std::string& folder, double& seconds) {
  std::ifstream file(folder + "/" + kJobFile);
  if (!file) {
    return folder + " holds no " + kJobFile +
           ": either it is no folder of nvio record, or that was killed; record again";
  }
  try {
    const Json json = Json::parse(file);
    if (json.at("format") != "nvio-record" || json.at("version") != kVersion) {
      return folder + " was recorded by another version of nvio; record again";
    }
    seconds = json.at("seconds").get<double>();
    if (const int status = json.at("status").get<int>(); status != 0) {
      return "the recorded command failed with status " + std::to_string(status) +
             ": what it did is not what it does when it works";
    }
    if (!(seconds >= 0)) return folder + "/" + kJobFile + " is damaged";
  } catch (const Json::exception&) {
    return folder + "/" + kJobFile + " is damaged; record again";
  }
  return {};
}

std::vector<std::string> traces_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".trace") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string no_trace_in(const std::string& folder) {
  return "the recorded command made no MPI-IO call, or none of its ranks could write into " +
         folder;
}

std::string why_not_whole(const std::string& path, const Trace& trace) {
  if (!trace.problem.empty() || trace.complete) return trace.problem;
  return path + " ends before its process left MPI: what came after is not known";
}

}  // namespace

std::string why_not_whole(const std::string& folder) {
  const std::vector<std::string> paths = traces_in(folder);
  for (const std::string& path : paths) {
    if (std::string why = why_not_whole(path, read_trace_file(path)); !why.empty()) return why;
  }
  return paths.empty() ? no_trace_in(folder) : std::string();
}

std::string job_json(const std::vector<std::string>& command, double seconds, int status) {
  const Json json{{"format", "nvio-record"},
                  {"version", kVersion},
                  {"command", command},
                  {"seconds", seconds},
                  {"status", status}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

JobTrace read_job(const std::string& folder) {
  JobTrace job;
  if (const std::string why = read_command(folder, job.seconds); !why.empty()) return refuse(why);
  std::vector<Trace> traces;
  for (const std::string& path : traces_in(folder)) {
    traces.push_back(read_trace_file(path));
    const Trace& trace = traces.back();
    if (const std::string why = why_not_whole(path, trace); !why.empty()) return refuse(why);
    if (std::string(trace.header.host) != traces.front().header.host) {
      return refuse("the job ran on several nodes, which are not predicted yet");
    }
  }
  if (traces.empty()) return refuse(no_trace_in(folder));

  std::uint64_t first = UINT64_MAX;
  std::uint64_t first_left = UINT64_MAX;
  std::uint64_t last_came = 0;
  for (const Trace& trace : traces) {
    first_left = std::min(first_left, trace.header.start + trace.calls.back().start);
    last_came = std::max(last_came, trace.header.start);
    for (const TraceCall& call : trace.calls) {
      first = std::min(first, trace.header.start + call.start);
    }
  }
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> known;
  std::uint32_t most_ranks = 0;
  for (Trace& trace : traces) {
    std::map<std::uint16_t, std::uint16_t> numbers;
    for (const auto& [number, file] : trace.files) {
      const auto [place, is_new] =
          known.emplace(std::pair(file.facts.device, file.facts.inode), job.files.size());
      if (is_new) job.files.push_back({file.path, file.source, file.facts.size});
      JobFileFacts& facts = job.files[place->second];
      facts.size = std::min(facts.size, file.facts.size);
      numbers[number] = static_cast<std::uint16_t>(place->second);
    }
    if (job.files.size() > UINT16_MAX) return refuse("more files than a prediction keeps apart");
    for (TraceCall& call : trace.calls) {
      if (call.kind != TraceKind::end) call.file = numbers.at(call.file);
      call.start += trace.header.start - first;
      if (call.kind > TraceKind::end) {
        call.ranks += static_cast<std::uint32_t>(job.views.size());
      } else {
        most_ranks = std::max(most_ranks, call.ranks);
      }
    }
    job.views.insert(job.views.end(), trace.views.begin(), trace.views.end());
    if (trace.calls.back().kind == TraceKind::end) trace.calls.pop_back();
    job.ranks.push_back(std::move(trace.calls));
  }
  if (most_ranks > job.ranks.size()) {
    return refuse("a file was shared by " + std::to_string(most_ranks) + " ranks, but only " +
                  std::to_string(job.ranks.size()) + " traces are there");
  }
  // What the first launch saves moves the next one, which begins with another store.
  if (last_came > first_left) {
    job.problem =
        "a process made its first MPI-IO call after another had left MPI: the command launches "
        "several programs one after another; record each by itself";
  }
  return job;
}

}  // namespace nvio
