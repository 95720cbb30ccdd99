// Children of a program under test.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

namespace checks {

// Whether the child found all as it should.
inline bool ended_well(pid_t child) {
  int status = 0;
  if (child < 0) give_up("a child");
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Whether child() is true in a child, made by `make`.
template <typename Child>
bool forked(Child&& child, pid_t (*make)() = fork) {
  const pid_t pid = make();
  if (pid == 0) _exit(child() ? 0 : 1);
  return ended_well(pid);
}

}  // namespace checks
