// Tells a copy of a process's memory from that memory: the child of a vfork has the latter.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <new>

namespace nvio {

// True here, and false in a child that has a copy of this memory until it says otherwise
// (madvise(2), MADV_WIPEONFORK). Of a page of its own, never freed. Where there is none it is true
// everywhere.
inline std::atomic<bool>* false_in_copies() {
  constexpr std::size_t kLength = sizeof(std::atomic<bool>);
  void* page = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return new std::atomic<bool>(true);
  madvise(page, kLength, MADV_WIPEONFORK);
  return new (page) std::atomic<bool>(true);
}

}  // namespace nvio
