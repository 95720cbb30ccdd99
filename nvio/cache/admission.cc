#include "admission.h"

#include <algorithm>

namespace nvio {
namespace {

constexpr std::uint32_t kFirstSamples = 8;  // timed all, and needed before anything is admitted
constexpr std::uint32_t kEvery = 64;
// A call through the cache costs about a microsecond, its share of a fetch or a write-back some
// more: below this a file is as good as its cache.
constexpr float kSlowSeconds = 15e-6F;
constexpr float kWeight = 0.125F;  // of a new sample in the running mean

}  // namespace

SampledTimer::SampledTimer(std::uint32_t& calls, const std::atomic<std::uint32_t>& samples)
    : sampling_(++calls % kEvery == 0 ||
                samples.load(std::memory_order_relaxed) < kFirstSamples) {
  if (sampling_) start_ = std::chrono::steady_clock::now();
}

void SampledTimer::note(FileEntry& entry, Direction direction, std::uint64_t length) const {
  if (!sampling_) return;
  const std::chrono::duration<float> passed = std::chrono::steady_clock::now() - start_;
  const float seconds = std::max(0.0F, passed.count() - static_cast<float>(length) * 1e-9F);
  const bool is_read = direction == Direction::read;
  auto& samples = is_read ? entry.read_samples : entry.write_samples;
  auto& mean = is_read ? entry.read_seconds : entry.write_seconds;
  const std::uint32_t before = samples.fetch_add(1, std::memory_order_relaxed);
  const float old = mean.load(std::memory_order_relaxed);
  const float weight = before < kFirstSamples ? 1.0F / static_cast<float>(before + 1) : kWeight;
  mean.store(old + weight * (seconds - old), std::memory_order_relaxed);
}

bool is_slow(const FileEntry& entry, Direction direction) {
  const bool is_read = direction == Direction::read;
  const auto& samples = is_read ? entry.read_samples : entry.write_samples;
  const auto& mean = is_read ? entry.read_seconds : entry.write_seconds;
  return samples.load(std::memory_order_relaxed) >= kFirstSamples &&
         mean.load(std::memory_order_relaxed) > kSlowSeconds;
}

void ReadPattern::note(std::uint64_t offset, std::uint64_t length) {
  streak_ = offset == next_ ? streak_ + 1 : 0;
  next_ = offset + length;
}

ReadPattern::Advice ReadPattern::advise(std::uint64_t offset, std::uint64_t length) {
  if (streak_ >= kSequential) return Advice::direct;
  const std::uint64_t group = offset / kGroupSize;
  Missed& missed = missed_[group % missed_.size()];
  if (missed.group != group) missed = {group, 0};
  ++missed.times;
  // A first miss tells nothing; a few in one MiB say that more will come.
  if (missed.times == 1 && length < kBlockSize) return Advice::direct;
  return missed.times <= 3 ? Advice::block : Advice::group;
}

}  // namespace nvio
