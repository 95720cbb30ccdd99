#include "signals.h"

#include <csignal>

namespace tare::echo {

std::atomic<bool> g_stop = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not lock");

namespace {

void on_stop_signal(int /*signal*/) { g_stop = true; }

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void catch_stop_signals() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;  // without SA_RESTART: waits are to end
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a peer or reader that has gone is an error, not our death
}

void receive_stop_signals_here() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace tare::echo
