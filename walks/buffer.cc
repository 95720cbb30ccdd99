#include "buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace walks {

void* allocate_pages(std::size_t bytes) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  constexpr std::size_t kLine = 64;
  const std::size_t unit = bytes >= kHuge ? kHuge : kLine;
  const std::size_t whole = std::max(unit, (bytes + unit - 1) / unit * unit);
  void* const memory = std::aligned_alloc(unit, whole);
  if (memory == nullptr) throw std::bad_alloc();
  // A wish: without huge pages it is only slower.
  if (unit == kHuge) madvise(memory, whole, MADV_HUGEPAGE);
  return memory;
}

}  // namespace walks
