#pragma once

#include "command_line.h"

namespace tare::echo {

/// Answers until told to stop. Returns the exit code; throws std::runtime_error with a sentence.
int serve(const ServeOptions& options);

}  // namespace tare::echo
