#include "segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "../system/random_ending.h"
#include "../system/real.h"
#include "store_folder.h"

namespace nvio {
namespace {

constexpr std::uint32_t kMostSlots = 1U << 30;

std::uint64_t page_aligned(std::uint64_t offset) {
  return (offset + kPageSize - 1) / kPageSize * kPageSize;
}

// Where the header notes an inode.
struct InodeBit {
  explicit InodeBit(std::uint64_t inode)
      : word(inode / 64 % std::extent_v<decltype(SegmentHeader::inodes)>),
        mask(std::uint64_t{1} << inode % 64) {}
  std::size_t word;
  std::uint64_t mask;
};

std::uint32_t bucket_count(std::uint32_t slots) {
  std::uint32_t buckets = 256;
  while (buckets < slots / 32 && buckets < 65536) buckets *= 2;
  return buckets;
}

}  // namespace

// Offsets in bytes from the start of the segment.
struct Segment::Layout {
  explicit Layout(std::uint32_t slots) : Layout(slots, slots, bucket_count(slots)) {}
  explicit Layout(std::uint32_t slots, std::uint32_t groups, std::uint32_t buckets_wanted)
      : buckets(page_aligned(sizeof(SegmentHeader))),
        files(page_aligned(buckets + buckets_wanted * sizeof(Bucket))),
        owners(page_aligned(files + kMaxFiles * sizeof(FileEntry))),
        group_table(page_aligned(owners + std::uint64_t{groups} * sizeof *owners_)),
        slot_table(page_aligned(group_table + groups * sizeof(Group))),
        bitmaps(page_aligned(slot_table + slots * sizeof(Slot))),
        blocks(page_aligned(bitmaps + std::uint64_t{slots} * 2 * kBitmapWords * 8)),
        end(blocks + slots * kBlockSize) {}
  std::uint64_t buckets, files, owners, group_table, slot_table, bitmaps, blocks, end;
};

std::string boot_identifier() {
  std::string text;
  read_text("/proc/sys/kernel/random/boot_id", text);
  return text.substr(0, text.find('\n'));
}

std::uint64_t Segment::capacity_within(std::uint64_t bytes) {
  std::uint32_t slots = 0;
  for (std::uint32_t more = kMostSlots; more > 0; more /= 2) {
    if (slots + more <= kMostSlots && Layout(slots + more).end <= bytes) slots += more;
  }
  return slots * kBlockSize;
}

bool Segment::map(int fd, std::uint64_t bytes, bool writable, std::string& why) {
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = mmap(nullptr, bytes, access, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    why = failed("cannot map the store");
    return false;
  }
  base_ = static_cast<char*>(memory);
  bytes_ = bytes;
  fd_ = fd;
  return true;
}

void Segment::lay_out(const Layout& layout) {
  files_ = reinterpret_cast<FileEntry*>(base_ + layout.files);
  buckets_ = reinterpret_cast<Bucket*>(base_ + layout.buckets);
  owners_ = reinterpret_cast<Peekable<std::uint16_t>*>(base_ + layout.owners);
  groups_ = reinterpret_cast<Group*>(base_ + layout.group_table);
  slots_ = reinterpret_cast<Slot*>(base_ + layout.slot_table);
  bitmaps_ = reinterpret_cast<std::uint64_t*>(base_ + layout.bitmaps);
  blocks_ = base_ + layout.blocks;
}

std::unique_ptr<Segment> Segment::open_or_create(const std::string& path, std::uint64_t capacity,
                                                 std::string& why) {
  const auto slots = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(capacity / kBlockSize, kGroupBlocks, kMostSlots));
  const Layout layout(slots);
  const std::string fresh = path + random_ending();
  // Made under a name of our own and linked into place whole: whoever finds it, finds it ready.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int fd = real().open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
      struct stat status {};
      std::unique_ptr<Segment> segment(new Segment);
      if (real().fstat(fd, &status) != 0 ||
          static_cast<std::uint64_t>(status.st_size) < sizeof(SegmentHeader) ||
          !segment->map(fd, static_cast<std::uint64_t>(status.st_size), true, why)) {
        real().close(fd);
        if (why.empty()) why = path + " is no nvio segment";
        return nullptr;
      }
      const SegmentHeader& header = segment->header();
      if (std::memcmp(header.magic, kSegmentMagic, sizeof kSegmentMagic) != 0 ||
          header.version != kSegmentVersion ||
          Layout(header.slots, header.groups, header.buckets).end !=
              static_cast<std::uint64_t>(status.st_size)) {
        why = path + " is no nvio segment of this version; it is left alone";
        return nullptr;
      }
      if (boot_identifier() != header.boot_id) {
        why = path + " is from before the machine restarted; recover it first: nvio recover DIR";
        return nullptr;
      }
      if (header.orphaned.load() != 0) {
        why = path + " is of a killed run; recover it first: nvio recover --latest DIR";
        return nullptr;
      }
      segment->lay_out(Layout(header.slots, header.groups, header.buckets));
      return segment;
    }
    if (errno != ENOENT) {
      why = failed("cannot open " + path);
      return nullptr;
    }
    const int made = real().open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made < 0) {
      why = failed("cannot make " + fresh);
      return nullptr;
    }
    std::unique_ptr<Segment> segment(new Segment);
    int reserved = may_reach(layout.end) ? 0 : EFBIG;
    if (reserved == 0 && real().ftruncate(made, static_cast<off_t>(layout.end)) != 0) {
      reserved = errno;
    }
    if (reserved == 0) reserved = reserve_room(made, 0, layout.files);
    if (reserved != 0 || !segment->map(made, layout.end, true, why)) {
      errno = reserved;
      if (why.empty()) why = failed("cannot reserve room for " + fresh);
      real().unlink(fresh.c_str());
      if (segment->base_ == nullptr) real().close(made);
      return nullptr;
    }
    segment->lay_out(layout);
    SegmentHeader& header = segment->header();
    std::memcpy(header.magic, kSegmentMagic, sizeof kSegmentMagic);
    header.version = kSegmentVersion;
    header.slots = header.groups = slots;
    header.buckets = bucket_count(slots);
    std::strncpy(header.boot_id, boot_identifier().c_str(), sizeof header.boot_id - 1);
    header.allocation.initialise();
    header.files.initialise();
    header.free_slot = header.free_group = kNone;
    header.ready.store(1);
    const bool placed = link(fresh.c_str(), path.c_str()) == 0;
    const int error = errno;
    real().unlink(fresh.c_str());
    if (placed) return segment;
    errno = error;
    if (errno != EEXIST) {
      why = failed("cannot place " + path);
      return nullptr;
    }
  }
  why = path + " keeps appearing and disappearing";
  return nullptr;
}

std::unique_ptr<Segment> Segment::open_existing(const StoreFolder& folder, std::string& why) {
  const std::string path = folder.path_of("segment");
  const int fd = folder.open("segment", O_RDONLY);
  if (fd < 0) {
    why = failed("cannot open " + path);
    return nullptr;
  }
  struct stat status {};
  std::unique_ptr<Segment> segment(new Segment);
  if (real().fstat(fd, &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) < sizeof(SegmentHeader) ||
      !segment->map(fd, static_cast<std::uint64_t>(status.st_size), false, why)) {
    real().close(fd);
    if (why.empty()) why = path + " is no nvio segment";
    return nullptr;
  }
  const SegmentHeader& header = segment->header();
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const bool whole = std::memcmp(header.magic, kSegmentMagic, sizeof kSegmentMagic) == 0 &&
                     header.version == kSegmentVersion && header.slots == header.groups &&
                     header.slots <= size / kBlockSize && header.buckets <= 65536 &&
                     header.buckets > 0 &&
                     Layout(header.slots, header.groups, header.buckets).end == size &&
                     header.fresh_slot <= header.slots && header.fresh_group <= header.groups &&
                     header.fresh_file <= kMaxFiles &&
                     std::memchr(header.boot_id, '\0', sizeof header.boot_id) != nullptr;
  if (!whole) {
    why = path +
          " is no nvio segment of this version: recover the store with the nvio that the job ran "
          "with";
    return nullptr;
  }
  segment->lay_out(Layout(header.slots, header.groups, header.buckets));
  return segment;
}

Segment::~Segment() {
  if (base_ != nullptr) {
    munmap(base_, bytes_);
    real().close(fd_);
  }
}

Bucket& Segment::bucket_of(std::uint32_t file, std::uint64_t group_index) {
  std::uint64_t hash = (group_index + 1) * 0x9E3779B97F4A7C15ULL + file * 0xC2B2AE3D27D4EB4FULL;
  hash ^= hash >> 29;
  Bucket& bucket = buckets_[hash & (header().buckets - 1)];
  if (bucket.ready.load(std::memory_order_acquire) == 0) make_ready(bucket);
  return bucket;
}

void Segment::make_ready(Bucket& bucket) {
  SegmentHeader& header = this->header();
  header.allocation.lock();
  if (bucket.ready.load() == 0) {
    bucket.lock.initialise();
    bucket.head = kNone;
    bucket.ready.store(1, std::memory_order_release);
  }
  header.allocation.unlock();
}

bool Segment::add_file() {
  std::atomic<std::uint32_t>& fresh = header().fresh_file;
  FileEntry& entry = files_[fresh.load()];
  if (!reserve(offset_of(&entry), sizeof(FileEntry))) return false;
  entry.lock.initialise();
  for (WriteUnderWay& write : entry.writes_under_way) write.lock.initialise();
  fresh.fetch_add(1);
  return true;
}

std::uint32_t Segment::find(const struct stat& status) const {
  for (std::uint32_t i = 0; i < used_files(); ++i) {
    const FileEntry& entry = files_[i];
    if (entry.used.load(std::memory_order_acquire) != 0 && entry.inode == status.st_ino &&
        entry.device == status.st_dev && entry.superseded.load() == 0) {
      return i;
    }
  }
  return kNone;
}

bool Segment::may_hold(const char* path, const struct stat& status) {
  // Not to be held up by what is no segment.
  const int fd = real().open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  const InodeBit bit(status.st_ino);
  std::uint64_t word = 0;
  const auto offset = offsetof(SegmentHeader, inodes) + bit.word * sizeof word;
  const bool read = real().pread(fd, &word, sizeof word, static_cast<off_t>(offset)) == sizeof word;
  real().close(fd);
  return read && (word & bit.mask) != 0;
}

bool Segment::is_joinable(int fd) {
  alignas(SegmentHeader) char bytes[sizeof(SegmentHeader)];
  if (read_fully(fd, bytes, sizeof bytes, 0) != sizeof bytes) return false;
  const auto& header = *reinterpret_cast<const SegmentHeader*>(bytes);
  return std::memcmp(header.magic, kSegmentMagic, sizeof kSegmentMagic) == 0 &&
         header.version == kSegmentVersion && header.orphaned.load() == 0 &&
         boot_identifier() == std::string(header.boot_id, strnlen(header.boot_id, 40));
}

void Segment::note_inode(std::uint64_t inode) {
  const InodeBit bit(inode);
  header().inodes[bit.word].fetch_or(bit.mask);
}

bool Segment::holds_unwritten() const {
  return std::any_of(files_, files_ + used_files(),
                     [](const FileEntry& entry) { return entry.holds_unwritten(); });
}

bool Segment::is_removed() const { return nvio::is_removed(fd_); }

std::uint32_t Segment::find_group(const Bucket& bucket, std::uint32_t file, std::uint64_t index) {
  std::uint32_t at = bucket.head;
  while (at != kNone && (groups_[at].index != index || file_of(at) != file)) {
    at = groups_[at].next;
  }
  return at;
}

bool Segment::reserve(std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t begin = offset / kPageSize * kPageSize;
  const std::uint64_t end = page_aligned(offset + length);
  return reserve_room(fd_, begin, end - begin) == 0;
}

std::uint32_t Segment::make_group(Bucket& bucket, std::uint32_t file, std::uint64_t index) {
  const std::uint32_t found = find_group(bucket, file, index);
  if (found != kNone) return found;
  SegmentHeader& header = this->header();
  header.allocation.lock();
  std::uint32_t taken = header.free_group;
  if (taken != kNone) {
    header.free_group = groups_[taken].next;
  } else if (header.fresh_group < header.groups) {
    taken = header.fresh_group;
    constexpr std::uint32_t kReserveGroups = 512;
    const std::uint64_t count = std::min(kReserveGroups, header.groups - taken);
    if (taken % kReserveGroups == 0 &&
        !(reserve(offset_of(&owners_[taken]), count * sizeof *owners_) &&
          reserve(offset_of(&groups_[taken]), count * sizeof(Group)))) {
      taken = kNone;
    } else {
      header.fresh_group = taken + 1;
    }
  }
  header.allocation.unlock();
  if (taken == kNone) return kNone;
  Group& group = groups_[taken];
  group.index = index;
  for (auto& slot : group.slot) slot = kNone;
  owners_[taken] = static_cast<std::uint16_t>(file + 1);
  group.next = bucket.head;
  bucket.head = taken;
  // Whoever is to log all changes says so and then looks for groups; who changes something has made
  // its group, and then looks whether to say so (HeldGroup). One of them sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return taken;
}

void Segment::drop_group(Bucket& bucket, std::uint32_t group) {
  Peekable<std::uint32_t>* link = &bucket.head;
  while (*link != kNone && *link != group) link = &groups_[*link].next;
  if (*link == kNone) return;
  *link = groups_[group].next;
  owners_[group] = 0;
  SegmentHeader& header = this->header();
  header.allocation.lock();
  groups_[group].next = header.free_group;
  header.free_group = group;
  header.allocation.unlock();
}

std::uint32_t Segment::take_slot() {
  SegmentHeader& header = this->header();
  header.allocation.lock();
  std::uint32_t taken = header.free_slot;
  const bool fresh = taken == kNone;
  if (!fresh) {
    header.free_slot = slots_[taken].group.load(std::memory_order_relaxed);
  } else if (header.fresh_slot < header.slots && header.full == 0) {
    taken = header.fresh_slot;
    if (taken >= header.reserved_slots) {
      const std::uint32_t count = std::min(kReserveSlots, header.slots - taken);
      if (reserve(offset_of(&slots_[taken]), count * sizeof(Slot)) &&
          reserve(offset_of(bitmap(taken)), std::uint64_t{count} * 2 * kBitmapWords * 8) &&
          reserve(offset_of(block(taken)), count * kBlockSize)) {
        header.reserved_slots = taken + count;
      } else {
        header.full = 1;
        taken = kNone;
      }
    }
    if (taken != kNone) header.fresh_slot = taken + 1;
  }
  header.allocation.unlock();
  if (taken == kNone) return kNone;
  Slot& slot = slots_[taken];
  slot.valid_pages = slot.dirty_pages = slot.unlogged_pages = slot.logging_pages =
      slot.logged_pages = slot.touched_pages = 0;
  slot.recent.store(1, std::memory_order_relaxed);
  // What was never used is zero, and need not be touched to stay so.
  if (!fresh) std::memset(bitmap(taken), 0, 2 * kBitmapWords * 8);
  return taken;
}

void Segment::give_slot(std::uint32_t slot) {
  SegmentHeader& header = this->header();
  header.allocation.lock();
  // While a slot is free its `group` field links the list; no reader takes it for a group, since
  // a slot is only ever reached from a group that names it.
  slots_[slot].dirty_pages = 0;
  slots_[slot].group.store(header.free_slot, std::memory_order_relaxed);
  header.free_slot = slot;
  header.allocation.unlock();
}

}  // namespace nvio
