// Memory for blocks: on huge pages, not zeroed, used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace walks {

// Huge pages where the kernel grants them; throws std::bad_alloc.
[[nodiscard]] void* allocate_pages(std::size_t bytes);

// Memory that is not zeroed, and kept for the next block: zeroing and faulting in pages would cost
// a tenth of a product.
template <typename T>
class Buffer {
 public:
  // At least `count` elements, of unspecified content.
  T* reserve(std::int64_t count) {
    if (count > capacity_) {
      memory_.reset();  // first, or both would be there at once
      capacity_ = 0;
      memory_.reset(static_cast<T*>(allocate_pages(static_cast<std::size_t>(count) * sizeof(T))));
      capacity_ = count;
    }
    return memory_.get();
  }
  [[nodiscard]] T* data() { return memory_.get(); }
  [[nodiscard]] const T* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T, Free> memory_;
  std::int64_t capacity_ = 0;
};

}  // namespace walks
