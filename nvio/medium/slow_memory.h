// A store that is slower than the memory it lies in, as NVRAM is: each access and each flush takes
// its time, which is waited for. The defaults are the paper's (Malinowski and Czarnul, table 2).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "medium.h"

namespace nvio {

struct MemorySpeed {
  std::uint32_t access_ns = 2000;
  std::uint32_t flush_ns = 600;
  std::uint64_t bytes_per_second = 9'500'000'000;
};

class SlowMemory {
 public:
  // As fast as the memory is.
  SlowMemory() = default;
  // What was waited for is added to `waited_ns`.
  SlowMemory(const MemorySpeed& speed, std::atomic<std::uint64_t>& waited_ns)
      : speed_(speed), waited_ns_(&waited_ns) {}

  // So many bytes next to each other are read or written.
  void access(std::uint64_t bytes) const {
    if (waited_ns_ == nullptr) return;
    wait(speed_.access_ns +
         static_cast<std::uint64_t>(1e9 * static_cast<double>(bytes) /
                                    static_cast<double>(speed_.bytes_per_second)));
  }
  void flush() const {
    if (waited_ns_ != nullptr) wait(speed_.flush_ns);
  }

 private:
  // A sleep would take fifty times as long.
  void wait(std::uint64_t ns) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
    waited_ns_->fetch_add(ns, std::memory_order_relaxed);
    while (std::chrono::steady_clock::now() < until) continue;
  }

  MemorySpeed speed_;
  std::atomic<std::uint64_t>* waited_ns_ = nullptr;
};

// A medium in such memory.
class SlowMedium : public Medium {
 public:
  SlowMedium(std::unique_ptr<Medium> medium, const SlowMemory& memory)
      : medium_(std::move(medium)), memory_(memory) {}

  int reserve(std::uint64_t size) override { return medium_->reserve(size); }
  int write(std::uint64_t offset, const void* data, std::size_t length) override {
    memory_.access(length);
    return medium_->write(offset, data, length);
  }
  int persist() override {
    memory_.flush();
    return medium_->persist();
  }
  int persist_name() override { return medium_->persist_name(); }
  Survives survives() const override { return medium_->survives(); }

 private:
  std::unique_ptr<Medium> medium_;
  const SlowMemory& memory_;
};

}  // namespace nvio
