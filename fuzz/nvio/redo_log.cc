// Any bytes as a redo log: the reader must neither crash nor
// redo anything but what it counted.
// Taken as they are, and once more as the records of a log whose checksums are then set right, for
// the fuzzer guesses no CRC.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "log/reader.h"
#include "system/crc32c.h"

namespace {

constexpr std::uint64_t kEpoch = 1;

void check(std::span<const std::byte> bytes) {
  nvio::LogReader reader(bytes);
  const nvio::ParsedLog log = reader.parse();
  if (!log.usable && log.extents != 0) std::abort();
  std::uint64_t redone = 0;
  const bool done = reader.replay(log, [&](std::uint64_t offset, std::span<const std::byte> piece) {
    if (offset > INT64_MAX || piece.size() > bytes.size()) std::abort();
    redone += piece.size();
  });
  if (!done || redone != log.bytes || reader.failed()) std::abort();
}

nvio::Superblock superblock(unsigned char choices) {
  nvio::Superblock block{};
  std::memcpy(block.magic, nvio::kLogMagic, sizeof block.magic);
  block.version = nvio::kLogVersion;
  block.state = (choices & 1) != 0 ? nvio::LogState::flushing : nvio::LogState::live;
  block.epoch = kEpoch;
  block.path_length = choices / 2;
  block.checksum = nvio::crc32c(&block, offsetof(nvio::Superblock, checksum));
  return block;
}

// Makes whole records of what lies in the records' places; their types, offsets and lengths stay.
void set_right(std::vector<std::byte>& log) {
  std::uint32_t chain = 0;
  std::size_t at = nvio::kFirstRecord;
  for (std::uint64_t sequence = 0; log.size() - at >= sizeof(nvio::Record); ++sequence) {
    nvio::Record record;
    std::memcpy(&record, log.data() + at, sizeof record);
    const std::size_t room = log.size() - at - sizeof record;
    record.magic = nvio::kRecordMagic;
    record.epoch = kEpoch;
    record.sequence = sequence;
    record.payload_checksum =
        nvio::crc32c(log.data() + at + sizeof record, std::min<std::uint64_t>(record.length, room));
    record.checksum = nvio::crc32c(&record, offsetof(nvio::Record, checksum), chain);
    std::memcpy(log.data() + at, &record, sizeof record);
    if (record.length > room || nvio::padded(record.length) > room) return;
    chain = record.checksum;
    at += sizeof record + nvio::padded(record.length);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  check({bytes, size});
  if (size == 0) return 0;
  std::vector<std::byte> log(nvio::kFirstRecord);
  const nvio::Superblock block = superblock(data[0]);
  std::memcpy(log.data(), &block, sizeof block);
  log.insert(log.end(), bytes + 1, bytes + size);
  set_right(log);
  check(log);
  return 0;
}
