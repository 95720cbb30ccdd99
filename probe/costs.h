// Each function adds one subcommand that measures one unit cost, and is a file of its own.
// When the subcommand is run, it prints its line or throws std::runtime_error with a sentence.
#pragma once

#include <CLI/CLI.hpp>

namespace tare::probe {

void AddClock(CLI::App& app);
void AddTimer(CLI::App& app);
void AddSystemCall(CLI::App& app);
void AddContextSwitch(CLI::App& app);
void AddWakeup(CLI::App& app);
void AddPageFault(CLI::App& app);
void AddMemoryCopy(CLI::App& app);
void AddColdCode(CLI::App& app);
void AddRequestCode(CLI::App& app);
void AddComputation(CLI::App& app);  // integer, floating-point
void AddUdpSend(CLI::App& app);
void AddUdpReceive(CLI::App& app);
void AddBlock(CLI::App& app);

// Counterparts, which run until they are told to end.
void AddUdpSink(CLI::App& app);
void AddCodeEcho(CLI::App& app);
void AddTapEcho(CLI::App& app);
void AddMeet(CLI::App& app);

}  // namespace tare::probe
