// Any bytes as a redo log: the reader must neither crash nor hand out bytes outside its input.
// Taken as they are, and once more as the records of a log whose checksums are then set right, for
// the fuzzer guesses no CRC.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "recovery/crc32c.h"
#include "recovery/log_reader.h"

namespace {

constexpr std::uint64_t kEpoch = 1;

void check(std::span<const std::byte> bytes) {
  const nvio::ParsedLog log = nvio::read_log(bytes);
  const std::less_equal<> at_most;
  for (const nvio::RedoStep& step : log.steps) {
    const bool inside = step.data.empty() ||
                        (at_most(bytes.data(), step.data.data()) &&
                         at_most(step.data.data() + step.data.size(), bytes.data() + bytes.size()));
    if (!inside || (!log.usable && !log.steps.empty())) std::abort();
  }
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
