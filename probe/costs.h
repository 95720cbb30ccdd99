// Each function adds one subcommand that measures one unit cost, and is a file of its own.
// When the subcommand is run, it prints its line or throws std::runtime_error with a sentence.
#pragma once

#include "command.h"

namespace tare::probe {

void AddClock(Command costs);
void AddTimer(Command costs);
void AddSystemCall(Command costs);
void AddContextSwitch(Command costs);
void AddWakeup(Command costs);
void AddPageFault(Command costs);
void AddMemoryCopy(Command costs);
void AddColdCode(Command costs);
void AddRequestCode(Command costs);
void AddComputation(Command costs);  // integer, floating-point
void AddUdpSend(Command costs);
void AddUdpReceive(Command costs);
void AddBlock(Command costs);

// Counterparts, which run until they are told to end.
void AddUdpSink(Command costs);
void AddCodeEcho(Command costs);
void AddTapEcho(Command costs);
void AddRelay(Command costs);
void AddMeet(Command costs);

}  // namespace tare::probe
