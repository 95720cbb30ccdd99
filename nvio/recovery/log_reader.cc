#include "log_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "crc32c.h"

namespace nvio {
namespace {

std::optional<Superblock> read_superblock(std::span<const std::byte> bytes, std::size_t copy) {
  if (bytes.size() < (copy + 1) * kSuperblockSize) return std::nullopt;
  Superblock block;
  std::memcpy(&block, bytes.data() + copy * kSuperblockSize, sizeof block);
  const bool good = std::memcmp(block.magic, kLogMagic, sizeof kLogMagic) == 0 &&
                    block.checksum == crc32c(&block, offsetof(Superblock, checksum)) &&
                    block.path_length <= sizeof block.path &&
                    (block.state == LogState::live || block.state == LogState::flushing);
  return good ? std::optional(block) : std::nullopt;
}

// Whether the bytes at `at` hold record number `sequence` of this epoch, whole.
std::optional<Record> read_record(std::span<const std::byte> bytes, std::uint64_t at,
                                  std::uint64_t epoch, std::uint64_t sequence,
                                  std::uint32_t chain) {
  if (at > bytes.size() || bytes.size() - at < sizeof(Record)) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes.data() + at, sizeof record);
  const std::uint64_t room = bytes.size() - at - sizeof record;
  const bool good =
      record.magic == kRecordMagic && record.epoch == epoch && record.sequence == sequence &&
      record.checksum == crc32c(&record, offsetof(Record, checksum), chain) &&
      record.length <= room && padded(record.length) <= room &&
      record.payload_checksum == crc32c(bytes.data() + at + sizeof record, record.length);
  return good ? std::optional(record) : std::nullopt;
}

// The first epoch's superblock is copy 1, and nothing else is written before that is durable.
bool is_untouched_but_for_copy_1(std::span<const std::byte> bytes) {
  const auto is_zero = [](std::byte byte) { return byte == std::byte{}; };
  const auto copy_0 = bytes.first(std::min<std::size_t>(bytes.size(), kSuperblockSize));
  const auto records = bytes.subspan(std::min<std::size_t>(bytes.size(), kFirstRecord));
  return std::all_of(copy_0.begin(), copy_0.end(), is_zero) &&
         std::all_of(records.begin(), records.end(), is_zero);
}

bool is_sane(const Record& record) {
  constexpr std::uint64_t kMost = INT64_MAX;
  if (record.offset > kMost || record.length > kMost - record.offset) return false;
  switch (record.type) {
    case RecordType::extent:
      return true;
    case RecordType::commit:
      return record.length == 0;
  }
  return false;
}

}  // namespace

ParsedLog read_log(std::span<const std::byte> bytes) {
  ParsedLog log;
  std::optional<Superblock> best;
  for (std::size_t copy = 0; copy < 2; ++copy) {
    const auto block = read_superblock(bytes, copy);
    if (block && (!best || block->epoch > best->epoch)) best = block;
  }
  if (!best) {
    log.never_started = is_untouched_but_for_copy_1(bytes);
    log.why = log.never_started ? "it was never started, so no sync is in it"
                                : "neither superblock is whole: this is no redo log of nvio";
    return log;
  }
  if (best->version != kLogVersion) {
    log.why = "written in version " + std::to_string(best->version) +
              " of the format, by another nvio; this one reads version " +
              std::to_string(kLogVersion) +
              ": recover the store with the nvio that the job ran with";
    return log;
  }
  log.usable = true;
  log.state = best->state;
  log.epoch = best->epoch;
  log.file = {best->device, best->inode, std::string(best->path, best->path_length),
              (best->flags & kFileDeleted) != 0, best->mark};

  std::vector<RedoStep> pending;
  std::uint64_t at = kFirstRecord;
  std::uint32_t chain = 0;
  for (std::uint64_t sequence = 0;; ++sequence) {
    const auto record = read_record(bytes, at, log.epoch, sequence, chain);
    if (!record || !is_sane(*record)) break;
    const auto payload = bytes.subspan(at + sizeof(Record), record->length);
    at += sizeof(Record) + padded(record->length);
    chain = record->checksum;
    if (record->type == RecordType::commit) {
      for (const auto& step : pending) log.bytes += step.data.size();
      log.steps.insert(log.steps.end(), pending.begin(), pending.end());
      pending.clear();
      log.file_size = record->offset;
      ++log.syncs;
    } else {
      pending.push_back({record->offset, payload});
    }
  }
  log.unfinished = pending.size();
  return log;
}

}  // namespace nvio
