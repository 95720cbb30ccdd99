#pragma once

#include <atomic>

namespace tare::echo {

/// Set by SIGINT or SIGTERM once CatchStopSignals was called.
extern std::atomic<bool> g_stop;

/// Makes the stop signals set g_stop, and blocks them in this thread and those it starts later.
void catch_stop_signals();

/// Lets the calling thread, and no other, be interrupted by the stop signals: a wait of the
/// main thread then ends with EINTR.
void receive_stop_signals_here();

}  // namespace tare::echo
