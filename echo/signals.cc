#include "signals.h"

#include <csignal>

namespace tare::echo {

std::atomic<bool> g_stop = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not lock");

namespace {

void OnStopSignal(int /*signal*/) { g_stop = true; }

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void CatchStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;  // without SA_RESTART: waits are to end
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a peer or reader that has gone is an error, not our death
}

void ReceiveStopSignalsHere() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace tare::echo
