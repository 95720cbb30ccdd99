// The node's working memory: one file, mapped by every process of the job on this node.
//
// Layout: header | buckets | files | owners | groups | slots | bitmaps | blocks. A group is 1 MiB
// of one file, found through a hash bucket whose lock guards the group and all its slots; a slot
// holds one 64 KiB block. Nothing here is needed to rebuild what was synced (that is the redo log's
// task, log/): after a crash of processes, but not of the machine, it still tells what was
// written since.
//
// The file starts as zeros, and each entry is made ready when it is first used: a job that opens
// one small file should not wait for tables that would hold a large one.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "../log/writer.h"
#include "bits.h"
#include "miss_counts.h"
#include "peekable.h"
#include "shared_lock.h"

namespace nvio {

constexpr std::uint64_t kBlockSize = 64 << 10;
constexpr std::uint64_t kGroupBlocks = 16;
constexpr std::uint64_t kGroupSize = kBlockSize * kGroupBlocks;
constexpr std::uint64_t kPageSize = 4 << 10;
constexpr std::uint32_t kMaxFiles = 512;
constexpr std::uint32_t kNone = ~0U;  // no slot, no group
constexpr std::size_t kMaxPath = 1024;

enum Mode : std::uint32_t {
  kPassive = 0,  // nothing is cached: calls go to the file without taking locks
  // Calls take locks; nothing is admitted before the last passive write is done. Nobody waits for
  // that: whoever transfers next and finds none under way goes on.
  kDraining = 1,
  kActive = 2,
  // What is cached is served and written back; nothing is admitted. Whoever leads it holds the
  // file's lock: if nobody does, he was killed, and the next one goes back to kActive.
  kLeaving = 3,
};

// A write under way that saw kPassive, or that nobody locks ranges of the file, holds one of these,
// on a cache line of its own. A process that is killed in its write lets go of it.
struct alignas(64) WriteUnderWay {
  SharedLock lock;
};
constexpr std::uint32_t kWritesUnderWay = 64;

// Whether the real file was written since its last fsync. Who writes it says so afterwards; who
// is killed in the fsync leaves it to be done again.
enum DirectWrites : std::uint32_t { kDurable = 0, kWritten = 1, kBeingSynced = 2 };

// Whether blocks of the file have changed since all of them were logged, or written and durable.
// Who changes one says so before, under its lock; who is killed, or fails, on the way there leaves
// it to be done again.
enum Changes : std::uint32_t { kSettled = 0, kChanged = 1, kBeingSettled = 2 };

// Whether processes of the node lock ranges of the file, as MPIs do. Who finds that they do not yet
// all know waits until no write is under way that does not.
enum RangeLocks : std::uint32_t { kNoLocks = 0, kFirstLock = 1, kKnownLocks = 2 };

// What becomes of a file that the job has deleted when it is closed.
enum Deletion : std::uint32_t {
  kKept = 0,
  kExpected = 1,   // nothing is written back before that is decided: the close may be refused it
  kDiscarded = 2,  // it is gone, or of no interest
};

// A file that some process of the job on this node has open. Guarded by `lock` unless atomic.
struct FileEntry {
  SharedLock lock;
  std::atomic<std::uint32_t> used;
  std::uint32_t references;  // processes' handles on it
  std::uint64_t device;
  std::uint64_t inode;
  FileMark mark;
  std::atomic<std::uint32_t> superseded;  // 1: the inode's number is another file's by now
  char path[kMaxPath];                    // as opened, absolute; for recovery
  std::atomic<std::uint64_t> size;  // bytes, as the job sees it: the real file's may lag behind
  std::atomic<std::uint64_t> real_size;  // the real file holds nothing of ours beyond this
  // Counts blocks that left the cache: a read that went round the cache meanwhile starts again.
  std::atomic<std::uint64_t> evictions;
  std::atomic<std::uint32_t> blocks;         // blocks cached
  std::atomic<std::uint32_t> direct_writes;  // a DirectWrites
  std::atomic<std::uint32_t> changes;        // a Changes
  std::atomic<std::uint32_t> synced;         // 1: a sync has completed, in the log or in the file
  std::atomic<std::uint32_t> mode;           // a Mode
  std::atomic<std::uint32_t> aside;          // 1: stay out of this file for good
  std::atomic<std::uint32_t> deleted;        // a Deletion
  std::atomic<std::uint32_t> range_locks;    // a RangeLocks
  // Admission (admission.h): of the sampled calls that went to the file, the median service time
  // and the share of slow ones.
  std::atomic<std::uint32_t> read_samples, write_samples;
  std::atomic<float> read_seconds, write_seconds;
  std::atomic<float> slow_reads, slow_writes;
  std::atomic<float> fetch_seconds;     // of a MiB; 0: none was fetched yet
  std::atomic<std::uint32_t> fetching;  // fetches under way
  MissCounts misses;
  // Redo log (log/): where the next record goes, and in which epoch. In doubt (1) while that
  // is changed, here or in the log: of a process that was killed meanwhile it stays so, and the
  // next one makes the file durable and begins the log anew.
  LogPosition log;
  std::atomic<std::uint32_t> log_in_doubt;
  std::uint32_t log_number;  // its name: NUMBER.redo
  std::uint8_t admit, sync, close, prefetch;
  std::uint64_t bypass_size;
  // Several nodes (nodes/job_file.h). The job's size is at least `confirmed`, as its home node
  // said.
  std::atomic<std::uint64_t> confirmed;
  std::atomic<std::uint64_t> part;  // 1 + groups in each node's part (1: striped); 0: not known yet
  std::uint64_t stripe;             // bytes (stripe.h); 0: not known
  std::atomic<std::uint32_t> left;  // 1: no node caches any of the file any more
  // errno of an fsync that failed. The kernel tells it once: the next sync or close passes it on.
  std::atomic<std::int32_t> untold;
  WriteUnderWay writes_under_way[kWritesUnderWay];

  std::string opened_path() const { return {path, strnlen(path, kMaxPath)}; }
  // Whether the store may hold bytes of the file that the file itself lacks.
  bool holds_unwritten() const {
    return used.load() != 0 && (blocks.load() != 0 || log.tail > kFirstRecord);
  }
};

struct Bucket {
  SharedLock lock;
  Peekable<std::uint32_t> head;      // first group, or kNone
  std::atomic<std::uint32_t> ready;  // 1: initialised
};

struct Group {
  Peekable<std::uint32_t> next;
  Peekable<std::uint64_t> index;  // of the MiB in the file
  Peekable<std::uint32_t> slot[kGroupBlocks];
};

// Pages are 4 KiB of the block; the byte-exact truth is in the bitmaps. A dirty bit says that the
// program wrote the byte, and that the file lacks it or the redo log has a record of its page.
struct Slot {
  std::atomic<std::uint32_t> group;        // kNone: not in use
  Peekable<std::uint8_t> place;            // which block of its group
  std::atomic<std::uint8_t> recent;        // second chance before eviction
  Peekable<std::uint16_t> valid_pages;     // wholly valid
  Peekable<std::uint16_t> dirty_pages;     // holding a byte that the file lacks
  Peekable<std::uint16_t> unlogged_pages;  // changed since the redo log's last commit
  // Being written to the redo log by a sync under way, or, without a record in it, to the file by a
  // checkpoint.
  Peekable<std::uint16_t> logging_pages;
  Peekable<std::uint16_t> logged_pages;   // having records in the redo log
  Peekable<std::uint16_t> touched_pages;  // fetched, and asked for since
};

struct SegmentHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t slots, groups, buckets;
  char boot_id[40];                                 // of the machine when it was made
  std::atomic<std::uint32_t> ready;                 // 1: initialised
  SharedLock allocation;                            // guards the fields below
  std::uint32_t free_slot, free_group;              // heads of free lists
  Peekable<std::uint32_t> fresh_slot, fresh_group;  // never used from here on
  std::uint32_t reserved_slots;                     // storage is reserved for slots below this
  std::uint32_t full;                               // 1: the store has no more room
  Peekable<std::uint32_t> clock_hand;
  std::uint32_t next_log;
  SharedLock files;                       // guards the table of files: taking and freeing entries
  std::atomic<std::uint32_t> fresh_file;  // never used from here on
  // 1: a process found no room in the table, so no file may be entered any more (session.h).
  std::atomic<std::uint32_t> overflowed;
  std::atomic<std::uint32_t> orphaned;  // 1: of a killed run; to be recovered, not to be joined
  std::atomic<std::uint32_t> nodes;     // of the job
  // A bit for each inode modulo their number: set as long as the store is there, once it has held a
  // file with such a one.
  std::atomic<std::uint64_t> inodes[8];
};

constexpr char kSegmentMagic[8] = {'n', 'v', 'i', 'o', 's', 'e', 'g', '1'};
constexpr std::uint32_t kSegmentVersion = 16;

class StoreFolder;

// A mapping of the segment, valid as long as the object. Threads may share it.
class Segment {
 public:
  // Makes the file (capacity in bytes of blocks) or attaches to the one that is there, whatever
  // its capacity. On failure returns null and a sentence in `why`.
  static std::unique_ptr<Segment> open_or_create(const std::string& path, std::uint64_t capacity,
                                                 std::string& why);
  // The most capacity that a file of so many bytes can have.
  static std::uint64_t capacity_within(std::uint64_t bytes);
  // For recovery and inspection: read-only, never waits, refuses what is not a whole segment.
  static std::unique_ptr<Segment> open_existing(const StoreFolder& folder, std::string& why);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(base_); }
  FileEntry& file(std::uint32_t index) { return files_[index]; }
  Group& group(std::uint32_t index) { return groups_[index]; }
  // Whose MiB the group is; kNone: nobody's. These lie side by side, to be searched for a file's.
  std::uint32_t file_of(std::uint32_t group) const { return std::uint32_t{owners_[group]} - 1; }
  Slot& slot(std::uint32_t index) { return slots_[index]; }
  char* block(std::uint32_t slot) { return blocks_ + slot * kBlockSize; }
  Bits valid(std::uint32_t slot) { return Bits(bitmap(slot)); }
  Bits dirty(std::uint32_t slot) { return Bits(bitmap(slot) + kBitmapWords); }
  Bucket& bucket_of(std::uint32_t file, std::uint64_t group_index);
  // Makes the next unused file entry ready; false when the store has no room for it. The lock of
  // the table of files must be held.
  bool add_file();

  // The group, or kNone. The bucket's lock must be held.
  std::uint32_t find_group(const Bucket& bucket, std::uint32_t file, std::uint64_t index);
  // Makes it if it is missing; kNone when there is no room. The bucket's lock must be held.
  std::uint32_t make_group(Bucket& bucket, std::uint32_t file, std::uint64_t index);
  void drop_group(Bucket& bucket, std::uint32_t group);

  // An unused slot with clean bitmaps, or kNone when all are taken. Reserves its storage first: a
  // store that runs full is found out here and never by a fault.
  std::uint32_t take_slot();
  void give_slot(std::uint32_t slot);

  std::uint32_t used_slots() const {
    return slots_ == nullptr ? 0U : std::uint32_t{header_const().fresh_slot};
  }
  std::uint32_t used_groups() const { return header_const().fresh_group; }
  std::uint32_t used_files() const {
    return header_const().fresh_file.load(std::memory_order_acquire);
  }
  // The table's entry for this file, or kNone.
  std::uint32_t find(const struct stat& status) const;
  // Of the segment at `path`, without mapping it: false if no entry was ever for this file.
  static bool may_hold(const char* path, const struct stat& status);
  // Of what the descriptor reads, without mapping it: whether processes could join it.
  static bool is_joinable(int fd);
  void note_inode(std::uint64_t inode);
  // Whether that is so of any file.
  bool holds_unwritten() const;
  // It is of a store that is gone.
  bool is_removed() const;

 private:
  static constexpr std::size_t kBitmapWords = kBlockSize / 64;
  static constexpr std::uint32_t kReserveSlots = 32;  // storage is reserved 2 MiB at a time

  Segment() = default;
  struct Layout;
  bool map(int fd, std::uint64_t bytes, bool writable, std::string& why);
  void lay_out(const Layout& layout);
  const SegmentHeader& header_const() const {
    return *reinterpret_cast<const SegmentHeader*>(base_);
  }
  std::uint64_t* bitmap(std::uint32_t slot) {
    return bitmaps_ + std::size_t{slot} * 2 * kBitmapWords;
  }
  std::uint64_t offset_of(const void* place) const {
    return static_cast<std::uint64_t>(static_cast<const char*>(place) - base_);
  }
  bool reserve(std::uint64_t offset, std::uint64_t length);
  void make_ready(Bucket& bucket);

  char* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  int fd_ = -1;
  FileEntry* files_ = nullptr;
  Bucket* buckets_ = nullptr;
  Peekable<std::uint16_t>* owners_ = nullptr;  // for each group its file's index and 1, or 0
  Group* groups_ = nullptr;
  Slot* slots_ = nullptr;
  std::uint64_t* bitmaps_ = nullptr;
  char* blocks_ = nullptr;
};

// The kernel's identifier of this boot, 36 characters.
std::string boot_identifier();

}  // namespace nvio
