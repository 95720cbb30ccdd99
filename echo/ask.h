#pragma once

#include "command_line.h"

namespace tare::echo {

/// Finds the server, warms up, measures, writes the samples. Returns the exit code; throws
/// std::runtime_error with a sentence.
int ask(const AskOptions& options);

}  // namespace tare::echo
