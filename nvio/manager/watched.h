// What epoll is to tell of, by numbers.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

namespace nvio {

// `change`: EPOLL_CTL_ADD, _MOD or _DEL. Returns whether epoll took it.
inline bool watch(int poll, int change, int descriptor, std::uint64_t number,
                  std::uint32_t events = EPOLLIN) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  return epoll_ctl(poll, change, descriptor, &event) == 0;
}

}  // namespace nvio
