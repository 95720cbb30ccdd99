#include "../store/bits.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace nvio {
namespace {

// Every operation against a vector<bool> that does the same one bit at a time.
TEST(Bits, AreThoseOfASlowReference) {
  constexpr std::size_t kSize = 512;
  std::vector<std::uint64_t> words(kSize / 64);
  Bits bits(words.data());
  std::vector<bool> reference(kSize);
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::size_t begin = random() % (kSize + 1);
    std::size_t end = random() % (kSize + 1);
    if (begin > end) std::swap(begin, end);
    const bool value = random() % 2 == 0;
    value ? bits.set(begin, end) : bits.clear(begin, end);
    for (std::size_t at = begin; at < end; ++at) reference[at] = value;
    begin = random() % kSize;
    end = begin + random() % (kSize - begin + 1);
    std::size_t next = begin;
    while (next < end && !reference[next]) ++next;
    ASSERT_EQ(bits.next_set(begin, end), next);
    next = begin;
    while (next < end && reference[next]) ++next;
    ASSERT_EQ(bits.next_clear(begin, end), next);
    ASSERT_EQ(bits.all(begin, end), next == end);
    std::size_t in_runs = 0;
    bits.each_run(begin, end, [&](std::size_t a, std::size_t b) {
      for (std::size_t at = a; at < b; ++at) ASSERT_TRUE(reference[at]);
      in_runs += b - a;
    });
    std::size_t set = 0;
    for (std::size_t at = begin; at < end; ++at) set += reference[at] ? 1 : 0;
    ASSERT_EQ(in_runs, set);
  }
}

}  // namespace
}  // namespace nvio
