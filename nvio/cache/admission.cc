#include "admission.h"

#include <algorithm>

namespace nvio {
namespace {

constexpr std::uint32_t kEvery = 64;
constexpr std::uint32_t kEverySlow = 8;  // where a clock read is nothing beside the call
constexpr float kMuchSlower = 100e-6F;
// A call through the cache costs about a microsecond, its share of a fetch or a write-back some
// more: below this a file is as good as its cache.
constexpr float kSlowSeconds = 15e-6F;
// By the share of slow calls and not by their mean: where ranks share cores, a call of a
// microsecond now and then takes a time slice.
constexpr float kSlowShare = 0.25F;
constexpr float kWeight = 0.0625F;        // of a new sample in the running shares
constexpr float kStep = 0.125F;           // of the running medians
constexpr double kSecondsPerByte = 1e-9;  // of a long transfer, and of a copy into the store
constexpr double kFetchWeight = 0.125;
constexpr double kFirstFetchWeight = 0.5;  // beside a guess
// What fetching a MiB is guessed to take before anything was fetched, in small reads.
constexpr double kGuessedReads = 10;
constexpr double kRentShare = 0.25;
// What a fetch must save at best, in units of what it takes: it is followed by a copy for each
// read, and it takes room.
constexpr double kLeastGain = 2;
constexpr std::uint64_t kLongWrite = 64 << 10;  // bytes, of one in a stream
constexpr double kLent = 4;                     // times what was paid, till then
constexpr double kMostOverdraft = 0.1;          // seconds
constexpr double kOverdraftShare = 0.05;

double seconds_of_fetch(const FileEntry& entry) {
  const double known = entry.fetch_seconds.load(std::memory_order_relaxed);
  return known == 0 ? kGuessedReads * entry.read_seconds.load(std::memory_order_relaxed) : known;
}

double extra_of_fetch(const FileEntry& entry) {
  const double read = entry.read_seconds.load(std::memory_order_relaxed);
  return std::max(0.0, seconds_of_fetch(entry) - read);
}

bool beside_fetch(const FileEntry& entry, Direction direction) {
  return direction == Direction::read && entry.fetching.load(std::memory_order_relaxed) != 0;
}

// A running median: the first calls of all find nothing warm, and one that lost its time slice
// takes a thousand times as long; neither says what the next will take.
void step(std::atomic<float>& median, float sample, std::uint32_t before) {
  const float old = median.load(std::memory_order_relaxed);
  const bool first = before < kFirstSamples;
  constexpr float kLeast = 1e-7F;  // what steps by a share of itself must not become zero
  float next = sample > old ? old * (1 + kStep) : old * (1 - kStep);
  if (first) next = before == 0 ? sample : std::min(old, sample);
  median.store(std::max(next, kLeast), std::memory_order_relaxed);
}

void blend(std::atomic<float>& mean, float sample, std::uint32_t before) {
  const float weight = std::max(kWeight, 1.0F / static_cast<float>(before + 1));
  const float old = mean.load(std::memory_order_relaxed);
  mean.store(old + weight * (sample - old), std::memory_order_relaxed);
}

}  // namespace

SampledTimer::SampledTimer(std::atomic<std::uint32_t>& calls, const FileEntry& entry,
                           Direction direction)
    : direction_(direction) {
  const bool is_read = direction == Direction::read;
  const auto& samples = is_read ? entry.read_samples : entry.write_samples;
  const auto& median = is_read ? entry.read_seconds : entry.write_seconds;
  const bool slow = median.load(std::memory_order_relaxed) > kMuchSlower;
  const std::uint32_t call = calls.load(std::memory_order_relaxed) + 1;
  calls.store(call, std::memory_order_relaxed);
  in_turn_ = call % (slow ? kEverySlow : kEvery) == 0;
  sampling_ = (in_turn_ || samples.load(std::memory_order_relaxed) < kFirstSamples) &&
              !beside_fetch(entry, direction);
  if (sampling_) start_ = clock_now();
}

void SampledTimer::note(FileEntry& entry, std::uint64_t length) const {
  if (!sampling_ || beside_fetch(entry, direction_)) return;
  const std::chrono::duration<float> passed = clock_now() - start_;
  const float bytes = static_cast<float>(length) * static_cast<float>(kSecondsPerByte);
  const float seconds = std::max(0.0F, passed.count() - bytes);
  const bool is_read = direction_ == Direction::read;
  auto& samples = is_read ? entry.read_samples : entry.write_samples;
  const std::uint32_t before = samples.fetch_add(1, std::memory_order_relaxed);
  // Begun before the first ones were enough: some rank may have gone by what those found.
  if (before >= kFirstSamples && !in_turn_) return;
  step(is_read ? entry.read_seconds : entry.write_seconds, seconds, before);
  blend(is_read ? entry.slow_reads : entry.slow_writes, seconds > kSlowSeconds ? 1.0F : 0.0F,
        before);
}

bool is_timed(const FileEntry& entry, Direction direction) {
  const auto& samples = direction == Direction::read ? entry.read_samples : entry.write_samples;
  return samples.load(std::memory_order_relaxed) >= kFirstSamples;
}

bool is_slow(const FileEntry& entry, Direction direction) {
  const auto& share = direction == Direction::read ? entry.slow_reads : entry.slow_writes;
  return is_timed(entry, direction) && share.load(std::memory_order_relaxed) > kSlowShare;
}

bool Ledger::affords(double seconds) const {
  const double paid = paid_.load(std::memory_order_relaxed);
  return balance_.load(std::memory_order_relaxed) + std::min(kLent * paid, kMostOverdraft) +
             kOverdraftShare * paid >=
         seconds;
}

// As many further reads are to be expected as there were so far: in this MiB, or on the average of
// the file. A MiB is fetched when a part of what it costs was paid in reads (as long as one rents
// before one buys), if the account allows it. Never where reads are so long that what is left of a
// MiB takes hardly longer by them, each byte once: then it is bytes that cost, and not calls.
bool fetch_pays(FileEntry& entry, const Ledger& ledger, std::uint64_t group, std::uint64_t length) {
  const double here = entry.misses.add(group);
  const double groups =
      1 + static_cast<double>(entry.size.load()) / static_cast<double>(kGroupSize);
  const double average = static_cast<double>(entry.misses.total.load()) / groups;
  const double expected = std::max(here, average);
  const double read = entry.read_seconds.load(std::memory_order_relaxed);
  const double extra = extra_of_fetch(entry);
  if (expected * read < kRentShare * extra || !ledger.affords(extra)) return false;
  const double bytes = static_cast<double>(length);
  const double once = static_cast<double>(kGroupSize) / bytes;
  const double still = expected > once ? expected : once - here;
  return still * (read + bytes * kSecondsPerByte) >= kLeastGain * seconds_of_fetch(entry);
}

double note_fetch(FileEntry& entry, double seconds) {
  const bool first = entry.fetch_seconds.load(std::memory_order_relaxed) == 0;
  const double known = seconds_of_fetch(entry);
  // By small steps: where ranks share cores, one fetch now and then takes a time slice.
  const double sample = std::min(seconds, 4 * known);
  const double weight = first ? kFirstFetchWeight : kFetchWeight;
  entry.fetch_seconds.store(static_cast<float>(known + weight * (sample - known)),
                            std::memory_order_relaxed);
  return extra_of_fetch(entry);
}

void ReadPattern::note(std::uint64_t offset, std::uint64_t length) {
  const bool adjoins = offset == next_.load(std::memory_order_relaxed);
  streak_.store(adjoins ? streak_.load(std::memory_order_relaxed) + 1 : 0,
                std::memory_order_relaxed);
  next_.store(offset + length, std::memory_order_relaxed);
}

bool WritePattern::note_is_stream(std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t last = last_.load(std::memory_order_relaxed);
  const std::uint64_t step = offset - last;
  const bool even = offset > last && step == step_.load(std::memory_order_relaxed);
  const std::uint32_t streak = even ? streak_.load(std::memory_order_relaxed) + 1 : 0;
  last_.store(offset, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  streak_.store(streak, std::memory_order_relaxed);
  return length >= kLongWrite && streak >= kCallsOfStream;
}

}  // namespace nvio
