// Each function adds one subcommand that measures one unit cost, and is a file of its own.
// When the subcommand is run, it prints its line or throws std::runtime_error with a sentence.
#pragma once

#include "command.h"

namespace tare::probe {

void add_clock(Command costs);
void add_timer(Command costs);
void add_system_call(Command costs);
void add_context_switch(Command costs);
void add_wakeup(Command costs);
void add_page_fault(Command costs);
void add_memory_copy(Command costs);
void add_cold_code(Command costs);
void add_request_code(Command costs);
void add_computation(Command costs);  // integer, floating-point
void add_udp_send(Command costs);
void add_udp_receive(Command costs);
void add_block(Command costs);

// Counterparts, which run until they are told to end.
void add_udp_sink(Command costs);
void add_code_echo(Command costs);
void add_tap_echo(Command costs);
void add_relay(Command costs);
void add_meet(Command costs);

}  // namespace tare::probe
