// Runs of bits in a bitmap with one bit for each byte of a block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace nvio {

// A view of a bitmap that lies elsewhere.
class Bits {
 public:
  explicit Bits(std::uint64_t* words) : words_(words) {}

  void set(std::size_t begin, std::size_t end) {
    each_word(begin, end, [](std::uint64_t& word, std::uint64_t mask) { word |= mask; });
  }

  void clear(std::size_t begin, std::size_t end) {
    each_word(begin, end, [](std::uint64_t& word, std::uint64_t mask) { word &= ~mask; });
  }

  bool all(std::size_t begin, std::size_t end) const { return find<false>(begin, end) == end; }
  bool any(std::size_t begin, std::size_t end) const { return find<true>(begin, end) != end; }

  // The first set (or clear) bit in [begin, end), or end.
  std::size_t next_set(std::size_t begin, std::size_t end) const { return find<true>(begin, end); }
  std::size_t next_clear(std::size_t begin, std::size_t end) const {
    return find<false>(begin, end);
  }

  // Calls visit(first, last) for each maximal run of set bits within [begin, end).
  template <typename Visit>
  void each_run(std::size_t begin, std::size_t end, Visit&& visit) const {
    for (std::size_t at = next_set(begin, end); at < end;) {
      const std::size_t stop = next_clear(at, end);
      visit(at, stop);
      at = next_set(stop, end);
    }
  }

 private:
  template <typename Change>
  void each_word(std::size_t begin, std::size_t end, Change&& change) {
    if (begin >= end) return;
    std::size_t word = begin / 64;
    const std::size_t last = (end - 1) / 64;
    std::uint64_t mask = ~0ULL << (begin % 64);
    for (; word < last; ++word, mask = ~0ULL) change(words_[word], mask);
    mask &= ~0ULL >> (63 - (end - 1) % 64);
    change(words_[word], mask);
  }

  template <bool Wanted>
  std::size_t find(std::size_t begin, std::size_t end) const {
    if (begin >= end) return end;
    std::size_t word = begin / 64;
    std::uint64_t bits = (Wanted ? words_[word] : ~words_[word]) & (~0ULL << (begin % 64));
    while (bits == 0) {
      ++word;
      if (word * 64 >= end) return end;
      bits = Wanted ? words_[word] : ~words_[word];
    }
    return std::min(end, word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
  }

  std::uint64_t* words_;
};

}  // namespace nvio
