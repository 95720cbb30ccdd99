// Byte-addressable memory that forgets: writes live in a cache of 64-byte lines until they are
// flushed, and at a crash a random subset of the unflushed lines has reached the medium. Of one
// whose name was not made safe there may be nothing at all.
#pragma once

#include <map>
#include <random>
#include <span>
#include <vector>

#include "medium.h"

namespace nvio {

class SimulatedMedium : public Medium {
 public:
  static constexpr std::size_t kLine = 64;

  explicit SimulatedMedium(std::uint64_t capacity) : capacity_(capacity) {}

  int reserve(std::uint64_t size) override;
  int write(std::uint64_t offset, const void* data, std::size_t length) override;
  int persist() override;
  int persist_name() override;
  Survives survives() const override { return Survives::machine; }

  // From now on the medium fails at its N-th line written: that line and all later ones are not
  // even in the cache, as if the machine had stopped there.
  void stop_after(std::uint64_t lines) { stop_after_ = lines; }
  bool stopped() const { return stopped_; }
  std::uint64_t lines_written() const { return lines_written_; }

  // What is on the medium after a crash now. The object itself stays as it is.
  std::vector<std::byte> crash(std::mt19937_64& random) const;
  std::span<const std::byte> content() const { return volatile_; }

 private:
  std::uint64_t capacity_;
  std::vector<std::byte> durable_;
  std::vector<std::byte> volatile_;
  // Every version that an unflushed line had, oldest first: a cache may evict a line at any time,
  // so any of them may be what the medium holds.
  std::map<std::uint64_t, std::vector<std::vector<std::byte>>> unflushed_;
  std::uint64_t lines_written_ = 0;
  std::uint64_t stop_after_ = UINT64_MAX;
  bool stopped_ = false;
  bool is_named_ = false;  // its folder's entry is safe
};

}  // namespace nvio
