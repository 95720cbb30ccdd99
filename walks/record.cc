#include "record.h"

#include <vector>

namespace walks {
namespace {

Json to_json(const Tally& tally) {
  Json json;
  for (std::size_t i = 0; i < tally.seconds.size(); ++i) {
    json[std::string(kPhaseNames[i]) + "_s"] = tally.seconds[i];
  }
  json["bytes_read"] = tally.bytes_read;
  json["bytes_written"] = tally.bytes_written;
  json["read_calls"] = tally.read_calls;
  json["write_calls"] = tally.write_calls;
  return json;
}

std::string name_of(Pattern pattern) {
  switch (pattern) {
    case Pattern::block:
      return "block";
    case Pattern::views:
      return "views";
    case Pattern::collective:
      return "collective";
    case Pattern::rows:
      return "rows";
    case Pattern::shift:
      return "shift";
  }
  return "";
}

}  // namespace

Json gather_tallies(Team& team, const Tally& mine) {
  static_assert(std::is_trivially_copyable_v<Tally>);
  std::vector<Tally> all(static_cast<std::size_t>(team.leads() ? team.size() : 0));
  MPI_Gather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, 0, team.comm());
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Json json;
    json["rank"] = rank;
    json.update(to_json(all[rank]));
    ranks.push_back(std::move(json));
  }
  return ranks;
}

Json describe_run(const Team& team, const Options& options, int threads) {
  std::string library(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  library.resize(std::min(library.find_first_of("\n,"), static_cast<std::size_t>(length)));
  Json json;
  json["walks"] = WALKS_VERSION;
  json["mpi"] = library.c_str();
  json["ranks"] = team.size();
  json["grid"] = {team.grid().rows, team.grid().cols};
  json["threads"] = threads;
  json["pattern"] = name_of(options.access.pattern);
  json["handover"] = options.access.handover == Handover::sync ? "sync" : "reopen";
  json["memory"] = options.access.memory;
  return json;
}

Json describe_matrix(const std::string& path, const Header& header) {
  Json json;
  json["path"] = path;
  json["kind"] = header.kind == Kind::kWalks ? "walks" : "lengths";
  json["vertices"] = header.n;
  json["cell"] = header.cell;
  json["tile"] = header.tile;
  json["power"] = header.power;
  json["first_vertex"] = header.first_vertex;
  json["saturated"] = header.saturated;
  return json;
}

}  // namespace walks
