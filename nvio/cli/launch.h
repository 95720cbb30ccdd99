// A command with the preload library in its environment.
#pragma once

#include <string>
#include <vector>

namespace nvio {

// The preload library: beside this program in a build tree, in ../lib/nvio once installed. Empty
// when it is in neither place or LD_PRELOAD cannot name it, which is then said.
std::string find_library();

// Runs the command to its end with the library preloaded and returns its exit status (128 + signal
// when it was killed). Signals that would end this process go on to it, and stay blocked
// afterwards.
int launch(const std::string& library, const std::vector<std::string>& command);

// Once nothing is left that they must not cut short.
void allow_signals();

}  // namespace nvio
