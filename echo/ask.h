#pragma once

#include "command_line.h"

namespace tare::echo {

/// Finds the server, warms up, measures, writes the samples. Returns the exit code; throws
/// std::runtime_error with a sentence.
int Ask(const AskOptions& options);

}  // namespace tare::echo
