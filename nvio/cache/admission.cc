#include "admission.h"

#include <algorithm>

namespace nvio {
namespace {

constexpr std::uint32_t kFirstSamples = 8;  // timed all, and needed before anything is admitted
constexpr std::uint32_t kEvery = 64;
// A call through the cache costs about a microsecond, its share of a fetch or a write-back some
// more: below this a file is as good as its cache.
constexpr float kSlowSeconds = 15e-6F;
// Misses of one process in a MiB before it fetches the MiB: as long as one rents before one buys. A
// MiB costs about as much as a dozen small reads, and so this many are the most that can be lost.
constexpr std::uint32_t kRent = 12;
// By the share of slow calls and not by their mean: where ranks share cores, a call of a
// microsecond now and then takes a time slice.
constexpr float kSlowShare = 0.25F;
constexpr float kWeight = 0.0625F;  // of a new sample in the running means

void blend(std::atomic<float>& mean, float sample, std::uint32_t before) {
  const float weight = std::max(kWeight, 1.0F / static_cast<float>(before + 1));
  const float old = mean.load(std::memory_order_relaxed);
  mean.store(old + weight * (sample - old), std::memory_order_relaxed);
}

}  // namespace

SampledTimer::SampledTimer(std::uint32_t& calls, const std::atomic<std::uint32_t>& samples)
    : sampling_(++calls % kEvery == 0 || samples.load(std::memory_order_relaxed) < kFirstSamples) {
  if (sampling_) start_ = std::chrono::steady_clock::now();
}

void SampledTimer::note(FileEntry& entry, Direction direction, std::uint64_t length) const {
  if (!sampling_) return;
  const std::chrono::duration<float> passed = std::chrono::steady_clock::now() - start_;
  const float seconds = std::max(0.0F, passed.count() - static_cast<float>(length) * 1e-9F);
  const bool is_read = direction == Direction::read;
  auto& samples = is_read ? entry.read_samples : entry.write_samples;
  const std::uint32_t before = samples.fetch_add(1, std::memory_order_relaxed);
  blend(is_read ? entry.read_seconds : entry.write_seconds, seconds, before);
  blend(is_read ? entry.slow_reads : entry.slow_writes, seconds > kSlowSeconds ? 1.0F : 0.0F,
        before);
}

bool is_slow(const FileEntry& entry, Direction direction) {
  const bool is_read = direction == Direction::read;
  const auto& samples = is_read ? entry.read_samples : entry.write_samples;
  const auto& share = is_read ? entry.slow_reads : entry.slow_writes;
  return samples.load(std::memory_order_relaxed) >= kFirstSamples &&
         share.load(std::memory_order_relaxed) > kSlowShare;
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
  missed.times += static_cast<std::uint32_t>(1 + length / kBlockSize);
  return missed.times < kRent ? Advice::direct : Advice::group;
}

}  // namespace nvio
