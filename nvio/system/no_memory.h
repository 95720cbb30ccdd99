// A program may be limited in the memory that it has, and live on what it is refused: then so must
// nvio, whose exceptions nobody there knows.
#pragma once

#include <cerrno>
#include <new>

namespace nvio {

// What act() returns, which is 0 or an errno value; ENOMEM where it lacked memory.
template <typename Act>
int or_no_memory(Act&& act) {
  try {
    return act();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

// The same as a call of the C library tells it.
inline int as_posix(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace nvio
