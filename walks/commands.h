// One function a subcommand: asks the parts, and returns what there is to say.
#pragma once

#include <string>

#include "cli.h"
#include "record.h"
#include "team.h"

namespace walks {

// The check takes the JSON library's assertions for exceptions that its moves might throw.
// NOLINTNEXTLINE(bugprone-exception-escape)
struct Answer {
  Json record;         // of the command itself; describe_run() is added by main
  std::string text;    // the same for people
  bool wrong = false;  // a verification failed
};

// Collective. Throws AgreedError.
Answer run(Team& team, const Options& options);

}  // namespace walks
