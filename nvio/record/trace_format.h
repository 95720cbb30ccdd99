// The bytes of a trace; docs/formats/nvio-trace.md is the specification. Little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace nvio {

static_assert(std::endian::native == std::endian::little,
              "a trace is written as it stands in memory: port trace_format.h first");

constexpr char kTraceMagic[8] = {'n', 'v', 'i', 'o', 't', 'r', 'a', 'c'};
constexpr std::uint32_t kTraceVersion = 2;                   // 1 had no views
constexpr std::uint32_t kTraceBlockMagic = 0x4254564e;       // "NVTB"
constexpr std::uint32_t kMostBlock = 1 << 20;                // bytes of a block's payload
constexpr std::uint64_t kMostOffset = 1ULL << 60;            // of any byte that a trace speaks of
constexpr std::uint64_t kMostTransfer = 1ULL << 31;          // bytes: more than Linux does at once
constexpr double kNanoseconds = 1e9;                         // of a second
constexpr std::uint64_t kMostTime = 1'000'000'000ULL << 30;  // ns: 34 years

struct TraceHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t process;   // its id
  std::uint64_t start;     // ns of the machine's monotonic clock: what times count from
  char host[64];           // where it ran; padded with zeros
  std::uint32_t unused;    // zero
  std::uint32_t checksum;  // CRC32C of all before
};
static_assert(sizeof(TraceHeader) == 96);

enum class TraceBlockType : std::uint32_t {
  calls = 1,  // TraceCall, one after another
  file = 2,   // TraceFile, its path, its mount's source; padded with zeros to 8 bytes
  view = 3,   // TraceView, its runs (FileRun), where it names no earlier view that has the same
};

struct TraceBlock {
  std::uint32_t magic;
  TraceBlockType type;
  std::uint32_t length;            // bytes of payload; a multiple of 8
  std::uint32_t sequence;          // 0, 1, 2 ...
  std::uint32_t payload_checksum;  // CRC32C
  std::uint32_t checksum;          // CRC32C of the fields before
};
static_assert(sizeof(TraceBlock) == 24);

// Comes before the first call that names it.
struct TraceFile {
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t size;  // when it was opened
  std::uint32_t number;
  std::uint16_t path_length;
  std::uint16_t source_length;
};
static_assert(sizeof(TraceFile) == 32);

// Comes before the first call that names it. Views are numbered as they come, from 0 on.
struct TraceView {
  std::uint64_t displacement;
  std::uint64_t extent;  // of its tiles
  std::uint32_t same;    // the number of a view that has the same tiles, or its own
  std::uint32_t runs;    // of a tile, in order
};
static_assert(sizeof(TraceView) == 24);
constexpr std::size_t kMostTracedRuns = (kMostBlock - sizeof(TraceView)) / 16;

enum class TraceKind : std::uint8_t {
  open = 1,        // MPI_File_open; length: its flags below
  close = 2,       // MPI_File_close; length: the same flags
  sync = 3,        // MPI_File_sync
  collective = 4,  // a transfer that all ranks of the handle make together
  read = 5,        // a POSIX call: `length` bytes at `offset`
  write = 6,
  resize = 7,  // to `length` bytes
  flush = 8,   // fsync, fdatasync
  aside = 9,   // what a cache cannot serve: a mapping, stdio, asynchronous calls
  end = 10,    // the process left MPI in order; nothing follows
  // What a rank asked for by one MPI call that nvio could serve by itself: `length` bytes from byte
  // `offset` of a view on. Inside of it stand the POSIX calls that the MPI made instead.
  read_view = 11,
  write_view = 12,
};

enum TraceFlags : std::uint64_t {
  kTraceReads = 1,
  kTraceWrites = 2,
  kTraceDeletes = 4,  // MPI_MODE_DELETE_ON_CLOSE
};

struct TraceCall {
  TraceKind kind;
  std::uint8_t unused;     // zero
  std::uint16_t file;      // its number
  std::uint32_t ranks;     // that share the handle, for kinds 1 to 4; the view, for 11 and 12; or 0
  std::uint64_t offset;    // bytes
  std::uint64_t length;    // bytes
  std::uint64_t start;     // ns since the header's
  std::uint64_t duration;  // ns
};
static_assert(sizeof(TraceCall) == 40);

// The order of a rank's calls: of those that start together the longer one comes first, as the
// others were made inside of it.
inline bool comes_before(const TraceCall& a, const TraceCall& b) {
  return a.start != b.start ? a.start < b.start : a.duration > b.duration;
}

}  // namespace nvio
