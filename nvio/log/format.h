// The redo log's bytes; docs/formats/nvio-redo.md is the specification. Little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "file_mark.h"

namespace nvio {

static_assert(std::endian::native == std::endian::little,
              "the redo log is written as it stands in memory: port log_format.h first");

constexpr char kLogMagic[8] = {'n', 'v', 'i', 'o', 'r', 'e', 'd', 'o'};
constexpr std::uint32_t kLogVersion = 3;
constexpr std::uint64_t kSuperblockSize = 4096;  // two of them, at 0 and 4096
constexpr std::uint64_t kFirstRecord = 2 * kSuperblockSize;
constexpr std::uint32_t kRecordMagic = 0x4352564e;  // "NVRC"

enum class LogState : std::uint32_t {
  live = 1,      // records of this epoch are to be replayed
  flushing = 2,  // as live; and the file may hold newer bytes: a write-back was under way
};

// Written whole to copy (epoch % 2): the other one stays good until this one is.
struct Superblock {
  char magic[8];
  std::uint32_t version;
  LogState state;
  std::uint64_t epoch;   // records of other epochs are from before, and void
  std::uint64_t device;  // of the file the log is for
  std::uint64_t inode;
  std::uint32_t flags;        // kFileDeleted
  std::uint32_t path_length;  // bytes of `path`
  char path[1024];            // absolute; no terminating zero
  FileMark mark;
  char unused[4096 - 8 - 4 - 4 - 8 - 8 - 8 - 4 - 4 - 1024 - 160 - 4];  // zeros
  std::uint32_t checksum;                                              // CRC32C of all before
};
static_assert(sizeof(Superblock) == kSuperblockSize);

constexpr std::uint32_t kFileDeleted = 1;  // the job deletes the file: nothing is to be rebuilt

enum class RecordType : std::uint32_t {
  extent = 1,  // `length` bytes for the file at `offset`; the payload follows
  commit = 3,  // all records before this belong to a completed sync; `offset` = file size
};

struct Record {
  std::uint32_t magic;
  RecordType type;
  std::uint64_t epoch;
  std::uint64_t sequence;  // 0, 1, 2 ... within the epoch
  std::uint64_t offset;
  std::uint64_t length;            // of the payload; padded with zeros to a multiple of 8
  std::uint32_t payload_checksum;  // CRC32C of the payload without padding
  std::uint32_t checksum;          // CRC32C of the fields before
};
static_assert(sizeof(Record) == 48);

constexpr std::uint64_t padded(std::uint64_t length) { return (length + 7) / 8 * 8; }

}  // namespace nvio
