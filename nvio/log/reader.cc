#include "reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "../system/crc32c.h"

namespace nvio {
namespace {

constexpr std::size_t kWindow = 1 << 20;
constexpr std::size_t kPiece = 64 << 10;  // of a payload

bool is_good(const Superblock& block) {
  return std::memcmp(block.magic, kLogMagic, sizeof kLogMagic) == 0 &&
         block.checksum == crc32c(&block, offsetof(Superblock, checksum)) &&
         block.path_length <= sizeof block.path &&
         (block.state == LogState::live || block.state == LogState::flushing);
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

LogReader::LogReader(std::span<const std::byte> bytes)
    : LogReader(bytes.size(), [bytes](std::uint64_t offset, std::span<std::byte> room) {
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), room.size(), room.begin());
        return true;
      }) {}

std::span<const std::byte> LogReader::look(std::uint64_t at, std::size_t length) {
  if (at >= size_) return {};
  length = static_cast<std::size_t>(std::min<std::uint64_t>(length, size_ - at));
  if (at < from_ || at + length > from_ + window_.size()) {
    window_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kWindow, size_ - at)));
    from_ = at;
    if (!read_(at, window_)) {
      failed_ = true;
      window_.clear();
      return {};
    }
  }
  return std::span(window_).subspan(static_cast<std::size_t>(at - from_), length);
}

template <typename Type>
bool LogReader::take(std::uint64_t at, Type& value) {
  const auto bytes = look(at, sizeof value);
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}

bool LogReader::next(std::uint64_t at, const ParsedLog& log, std::uint64_t sequence,
                     std::uint32_t chain, Record& record) {
  if (!take(at, record) || record.magic != kRecordMagic || record.epoch != log.epoch ||
      record.sequence != sequence ||
      record.checksum != crc32c(&record, offsetof(Record, checksum), chain) || !is_sane(record)) {
    return false;
  }
  const std::uint64_t room = size_ - at - sizeof record;
  return record.length <= room && padded(record.length) <= room;
}

// The first epoch's superblock is copy 1, and nothing else is written before that is durable.
bool LogReader::is_untouched_but_for_copy_1() {
  for (std::uint64_t at = 0; at < size_; at += kSuperblockSize) {
    const auto bytes = look(at, kSuperblockSize);
    const bool is_zero =
        std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{}; });
    if (at != kSuperblockSize && (bytes.empty() || !is_zero)) return false;
  }
  return true;
}

ParsedLog LogReader::parse() {
  ParsedLog log;
  std::optional<Superblock> best;
  for (std::uint64_t copy = 0; copy < 2; ++copy) {
    Superblock block;
    if (take(copy * kSuperblockSize, block) && is_good(block) &&
        (!best || block.epoch > best->epoch)) {
      best = block;
    }
  }
  if (!best) {
    log.never_started = is_untouched_but_for_copy_1();
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

  std::uint64_t at = kFirstRecord;
  std::uint64_t bytes = 0;  // since the last commit
  std::uint32_t chain = 0;
  Record record{};
  for (std::uint64_t sequence = 0; next(at, log, sequence, chain, record); ++sequence) {
    at += sizeof record;
    std::uint32_t checksum = 0;
    for (std::uint64_t done = 0; done < record.length;) {
      const auto piece =
          look(at + done,
               static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, record.length - done)));
      if (piece.empty()) return log;
      checksum = crc32c(piece.data(), piece.size(), checksum);
      done += piece.size();
    }
    if (checksum != record.payload_checksum) break;
    at += padded(record.length);
    chain = record.checksum;
    if (record.type == RecordType::commit) {
      log.bytes += bytes;
      bytes = 0;
      log.extents += log.unfinished;
      log.unfinished = 0;
      log.file_size = record.offset;
      ++log.syncs;
    } else {
      bytes += record.length;
      ++log.unfinished;
    }
  }
  return log;
}

bool LogReader::replay(const ParsedLog& log, const Visit& visit) {
  std::uint64_t at = kFirstRecord;
  std::uint32_t chain = 0;
  Record record{};
  std::uint64_t extents = 0;
  for (std::uint64_t sequence = 0; extents < log.extents; ++sequence) {
    if (!next(at, log, sequence, chain, record)) return false;
    at += sizeof record;
    for (std::uint64_t done = 0; done < record.length;) {
      const auto piece =
          look(at + done,
               static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, record.length - done)));
      if (piece.empty()) return false;
      visit(record.offset + done, piece);
      done += piece.size();
    }
    at += padded(record.length);
    chain = record.checksum;
    if (record.type == RecordType::extent) ++extents;
  }
  return true;
}

}  // namespace nvio
