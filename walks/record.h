// What a run says about itself: one JSON record, and the same as text.
#pragma once

#include <nlohmann/json.hpp>

#include "cli.h"
#include "team.h"

namespace walks {

using Json = nlohmann::ordered_json;

// Collective: the tallies of all ranks, in seconds, bytes and calls; complete on rank 0 only.
Json gather_tallies(Team& team, const Tally& mine);

// Where and how the run takes place.
Json describe_run(const Team& team, const Options& options, int threads);

Json describe_matrix(const std::string& path, const Header& header);

}  // namespace walks
