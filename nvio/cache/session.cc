#include "session.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "../recovery/enter_store.h"
#include "../recovery/left_over.h"
#include "../settings/launcher.h"
#include "../store/slots.h"
#include "../store/store_folder.h"
#include "../system/no_memory.h"
#include "../system/real.h"
#include "cached_file.h"
#include "capacity.h"
#include "raise_to.h"
#include "stripe.h"

namespace nvio {

std::unique_ptr<Session> Session::join(const Settings& settings, std::string& why) {
  std::unique_ptr<Session> session(new Session);
  session->settings_ = settings;
  session->settings_.session = session_name(settings);  // a forked child would find another
  session->folder_ = store_folder(session->settings_, settings.node.value_or(0));
  const std::string& folder = session->folder_;
  if (settings.kind == StoreKind::simulated) {
    session->memory_ = SlowMemory(settings.simulated, session->counters_.simulated_ns);
  }
  const bool tmpfs = settings.kind == StoreKind::tmpfs || settings.kind == StoreKind::simulated ||
                     (settings.kind == StoreKind::automatic && is_tmpfs(settings.store));
  if (settings.kind == StoreKind::automatic) {
    session->settings_.kind = tmpfs ? StoreKind::tmpfs : StoreKind::file;
  }
  const bool begins = settings.nodes > 1 && access(folder.c_str(), F_OK) != 0;
  if (begins && !is_nothing_left_beside(folder, why)) return nullptr;
  session->alive_ = enter_store(folder, settings.nodes, session->remark_, why);
  if (!session->alive_.is_open()) return nullptr;
  // Only who makes the store needs to know how large it may be: finding out costs more than the
  // rest of joining. Nobody takes a store away while we hold our lock.
  const std::string path = folder + "/segment";
  std::uint64_t capacity = 0;
  if (access(path.c_str(), F_OK) != 0) {
    capacity = choose_capacity(settings, tmpfs, why);
    if (capacity == 0) {
      session->alive_.give_up();
      if (session->alive_.take_alone() && !session->alive_.is_removed()) {
        real().unlink((folder + "/alive").c_str());
        rmdir(folder.c_str());
      }
      return nullptr;
    }
  }
  session->segment_ = Segment::open_or_create(path, capacity, why);
  if (session->segment_ == nullptr) return nullptr;
  session->segment_->header().nodes.store(settings.nodes);
  return session;
}

// Where memory is lacking then, what could not be written is kept all the same.
Session::Session() { unwritten_.reserve(kMaxFiles); }

Session::~Session() { leave(); }

// The last process takes the folder away, unless something is left for `nvio recover`: of a process
// that was killed, or of a file that could not be written.
void Session::leave() {
  for (auto& file : files_) file.reset();
  if (!unwritten_.empty()) {
    const std::lock_guard table(segment_->header().files);
    for (const auto& file : unwritten_) {
      const FileEntry& entry = file->entry();
      if (entry.used.load() != 0 && entry.references == 0) drop_if_deleted(*file);
    }
    unwritten_.clear();
  }
  if (alive_.is_open() && segment_ != nullptr) leave_to_others();
  segment_.reset();
  alive_ = LifeLock();
}

// Only who is alone knows what is left: until then others write back what they have, and look, when
// they have done so, whether we are still there. Of two who leave at once neither would be alone if
// both kept their share; without it another can come, take the store for a dead run's, and begin
// anew.
bool Session::leave_to_others() {
  alive_.give_up();
  const bool is_last = alive_.take_alone();
  if (is_last && !segment_->is_removed() && !segment_->holds_unwritten()) remove_folder();
  alive_.give_up();
  return is_last;
}

void Session::give_up_store() {
  const std::lock_guard guard(mutex_);
  for (const auto& file : files_) {
    if (file != nullptr && file->entry().log.epoch != 0) delete_log(file->entry());
  }
  leave_to_others();
}

void Session::abandon() { alive_ = LifeLock(); }

// rmdir fails, as it should, while there is a log in the folder. A living manager would hold the
// folder's lock, so what there is of one is of one that was killed.
void Session::remove_folder() {
  for (const char* name : kStoreFiles) real().unlink((folder_ + "/" + name).c_str());
  rmdir(folder_.c_str());
}

void Session::flush_for_good() {
  // A handle of our own on each file, so that none goes away while it is written back.
  std::array<CachedFile*, kMaxFiles> all;
  std::size_t open = 0;
  {
    const std::lock_guard guard(mutex_);
    const std::lock_guard table(segment_->header().files);
    for (std::uint32_t i = 0; i < kMaxFiles; ++i) {
      if (files_[i] == nullptr) continue;
      ++handles_[i];
      all[open++] = files_[i].get();
    }
  }
  const auto files = std::span(all).first(open);
  // All ranks share in the writing; what follows is one rank's for each file, and mostly done.
  for (CachedFile* file : files) file->write_back();
  bool all_aside = true;
  for (CachedFile* file : files) {
    const bool aside = file->step_aside() == 0;
    all_aside = all_aside && aside;
    if (aside && file->entry().log.epoch != 0) delete_log(file->entry());
  }
  if (!all_aside) return;
  // Launchers kill a job's other ranks as soon as one has ended: so wait for each other a little,
  // and whoever is last takes the store away.
  constexpr int kRounds = 100;
  constexpr useconds_t kPause = 10000;
  for (int i = 0; i < kRounds && !leave_to_others(); ++i) usleep(kPause);
}

// The entry of the file behind the descriptor, or kNone. A process that was killed lets go of its
// file, but not of its entry: by now the inode's number may be another file's. The lock of the
// table must be held.
std::uint32_t Session::find_open(int fd, const struct stat& status) {
  const std::uint32_t known = segment_->find(status);
  if (known == kNone || !is_surely_another(segment_->file(known).mark, fd)) return known;
  segment_->file(known).superseded.store(1);
  return kNone;
}

CachedFile* Session::acquire_entry(std::uint32_t index, int fd, const struct stat& status) {
  if (files_[index] == nullptr) {
    files_[index] = std::make_unique<CachedFile>(*this, index);
    FileEntry& entry = segment_->file(index);
    if (entry.references++ == 0) {
      // Kept since a close that could not write it: others may have made it longer since.
      const auto size = static_cast<std::uint64_t>(status.st_size);
      raise_to(entry.size, size);
      raise_to(entry.real_size, size);
    }
  }
  // On several nodes calls on it fail, for want of a descriptor: others cache what this one lacks.
  if (!files_[index]->lend(fd) && nodes() <= 1 && leave_unserved(index)) return nullptr;
  files_[index]->renew_mark();
  std::erase_if(unwritten_, [index](const auto& kept) { return kept->index() == index; });
  ++handles_[index];
  return files_[index].get();
}

// This process has no descriptor left by which to serve the file: it goes to the file itself, and
// so all must. False where they cannot: what is cached would be missed. The lock of the table must
// be held.
bool Session::leave_unserved(std::uint32_t index) {
  FileEntry& entry = segment_->file(index);
  if (files_[index]->step_aside() != 0) return false;
  if (!settings_.quiet && !std::exchange(has_said_unserved_, true)) {
    std::fprintf(stderr,
                 "nvio: no descriptor is left to serve %s by, so it goes on without the cache; a "
                 "higher limit of open files (ulimit -n) would do\n",
                 entry.path);
  }
  if (handles_[index] == 0) {
    if (--entry.references == 0) entry.used.store(0, std::memory_order_release);
    files_[index].reset();
  }
  return true;
}

void Session::raise(FileEntry& entry, const FileSettings& settings) {
  const auto sync = static_cast<std::uint8_t>(settings.sync);
  const auto close = static_cast<std::uint8_t>(settings.close);
  if (sync <= entry.sync && close <= entry.close) return;
  const std::lock_guard guard(entry.lock);
  entry.sync = std::max(entry.sync, sync);
  entry.close = std::max(entry.close, close);
}

CachedFile* Session::acquire(int fd, const std::string& path, const FileSettings& settings) {
  struct stat status {};
  if (real().fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  if (path.empty() || path.size() >= kMaxPath) return nullptr;
  const std::lock_guard guard(mutex_);
  SegmentHeader& header = segment_->header();
  const std::lock_guard table(header.files);
  const std::uint32_t known = find_open(fd, status);
  if (known != kNone) {
    raise(segment_->file(known), settings);
    return acquire_entry(known, fd, status);
  }
  if (has_overflowed()) return nullptr;
  for (std::uint32_t i = 0; i < kMaxFiles; ++i) {
    if (i == segment_->used_files() && !segment_->add_file()) break;
    FileEntry& entry = segment_->file(i);
    if (entry.used.load() != 0) continue;
    entry.references = 0;
    entry.device = status.st_dev;
    entry.inode = status.st_ino;
    entry.mark = mark_of(fd, path);
    entry.superseded.store(0);
    std::memset(entry.path, 0, sizeof entry.path);
    std::memcpy(entry.path, path.data(), path.size());
    const auto size = static_cast<std::uint64_t>(status.st_size);
    entry.size.store(size);
    entry.real_size.store(size);
    entry.blocks.store(0);
    entry.direct_writes.store(kWritten);  // who knows what was written before we looked
    entry.changes.store(kChanged);
    entry.synced.store(0);
    entry.mode.store(settings.admit == Admit::always ? kActive : kPassive);
    entry.aside.store(0);
    entry.deleted.store(kKept);
    entry.range_locks.store(kNoLocks);
    entry.read_samples.store(0);
    entry.write_samples.store(0);
    for (auto* mean : {&entry.read_seconds, &entry.write_seconds, &entry.slow_reads,
                       &entry.slow_writes, &entry.fetch_seconds}) {
      mean->store(0);
    }
    entry.fetching.store(0);
    entry.misses.clear();
    entry.log = LogPosition{};
    entry.log_in_doubt.store(0);
    // What a file of the folder holds already may be all that is left of something: its number is
    // taken.
    do {
      entry.log_number = ++header.next_log;
    } while (access(log_path(entry).c_str(), F_OK) == 0);
    entry.admit = static_cast<std::uint8_t>(settings.admit);
    entry.sync = static_cast<std::uint8_t>(settings.sync);
    entry.close = static_cast<std::uint8_t>(settings.close);
    entry.bypass_size = settings.bypass_size;
    entry.confirmed.store(size);
    entry.part.store(0);
    // Only where nodes share the file: to ask it costs a network file system a message.
    entry.stripe = nodes() > 1 ? stripe_of(fd, status, settings) : 0;
    entry.left.store(0);
    entry.untold.store(0);
    segment_->note_inode(status.st_ino);
    entry.used.store(1, std::memory_order_release);
    return acquire_entry(i, fd, status);
  }
  header.overflowed.store(1);
  return nullptr;
}

CachedFile* Session::acquire_if_open(int fd, const struct stat& status) {
  if (segment_->find(status) == kNone) return nullptr;
  const std::lock_guard guard(mutex_);
  const std::lock_guard table(segment_->header().files);
  const std::uint32_t index = find_open(fd, status);
  return index == kNone ? nullptr : acquire_entry(index, fd, status);
}

CachedFile* Session::acquire_if_open_here(const struct stat& status) {
  const std::lock_guard guard(mutex_);
  const std::lock_guard table(segment_->header().files);
  const std::uint32_t index = segment_->find(status);
  if (index == kNone || files_[index] == nullptr) return nullptr;
  ++handles_[index];
  return files_[index].get();
}

int Session::release(CachedFile* file) {
  const std::uint32_t index = file->index();
  const std::lock_guard guard(mutex_);
  if (--handles_[index] != 0) return 0;
  FileEntry& entry = segment_->file(index);
  int error = 0;
  bool is_wanted = true;
  {
    const std::lock_guard table(segment_->header().files);
    if (--entry.references == 0) {
      error = or_no_memory([file] { return file->finish(); });
      if (error == 0 || !entry.holds_unwritten()) {
        entry.used.store(0, std::memory_order_release);
      } else if (!drop_if_deleted(*file)) {
        unwritten_.push_back(std::move(files_[index]));
      }
    }
    const int untold = entry.untold.exchange(0);
    is_wanted = entry.deleted.load() != kDiscarded;
    if (error == 0 && is_wanted) error = untold;
  }
  const int closed = files_[index] != nullptr ? files_[index]->close() : 0;
  files_[index].reset();
  return error == 0 && is_wanted ? closed : error;
}

// Nobody has the file open, and nobody can open it again. The lock of the table must be held.
bool Session::drop_if_deleted(CachedFile& file) {
  if (!file.has_no_name()) return false;
  file.discard();
  file.finish();
  file.entry().used.store(0, std::memory_order_release);
  return true;
}

void Session::correct_size(struct stat* status) {
  const std::uint32_t index = segment_->find(*status);
  if (index == kNone) return;
  const FileEntry& entry = segment_->file(index);
  const std::uint32_t mode = entry.mode.load();
  if (entry.aside.load() == 0 && (mode == kActive || mode == kLeaving)) {
    status->st_size = static_cast<off_t>(entry.size.load());
  }
}

bool Session::drop_slot(std::uint32_t index) {
  const std::uint32_t group_index = segment_->slot(index).group.load(std::memory_order_relaxed);
  if (group_index >= segment_->used_groups()) return false;
  const std::uint32_t file = segment_->file_of(group_index);
  if (file >= kMaxFiles) return false;
  HeldGroup held(*segment_, file, segment_->group(group_index).index);
  if (held.group() != group_index) return false;
  Slot& slot = segment_->slot(index);
  if (held.slot(slot.place) != index || slot.dirty_pages != 0 || has_records(slot)) return false;
  FileEntry& entry = segment_->file(file);
  // Counted before it goes: a read that looked into the file earlier must look again.
  entry.evictions.fetch_add(1, std::memory_order_release);
  held.give(slot.place);
  held.drop_if_empty();
  count(counters_.evicted_blocks);
  return true;
}

bool Session::make_room() {
  constexpr std::uint32_t kEnough = 32;  // blocks freed at a time
  constexpr std::uint32_t kLook = 4096;  // slots looked at for each
  constexpr std::size_t kVictims = 16;
  const std::uint32_t used = segment_->used_slots();
  if (used == 0) return false;
  std::uint32_t freed = 0;
  std::array<std::uint32_t, kVictims> dirty;
  std::size_t victims = 0;
  for (std::uint32_t i = 0; i < std::min(2 * used, kLook) && freed < kEnough; ++i) {
    // The hand is shared and not locked: a lost step costs nothing.
    const std::uint32_t index = segment_->header().clock_hand++ % used;
    Slot& slot = segment_->slot(index);
    if (slot.recent.exchange(0, std::memory_order_relaxed) != 0 && i < used) continue;
    if (slot.dirty_pages != 0 || has_records(slot)) {
      if (victims < kVictims) dirty[victims++] = index;
    } else if (drop_slot(index)) {
      ++freed;
    }
  }
  if (freed > 0) return true;

  // Nothing clean is left: write back around the victims. A file with records in its log is
  // written back whole and made durable there, so that the records are not needed any more.
  const std::lock_guard guard(mutex_);
  std::uint32_t refused = kNone;
  for (const std::uint32_t index : std::span(dirty).first(victims)) {
    Slot& slot = segment_->slot(index);
    const std::uint32_t group_index = slot.group.load(std::memory_order_relaxed);
    if (group_index >= segment_->used_groups()) continue;
    const Group seen = segment_->group(group_index);
    const std::uint32_t file_index = segment_->file_of(group_index);
    if (file_index >= kMaxFiles || files_[file_index] == nullptr) continue;
    CachedFile& file = *files_[file_index];
    if (!file.can_write_back()) continue;
    if (has_records(slot)) {
      if (file_index == refused) continue;  // else all of it would be written for each victim
      if (file.checkpoint() != 0) {
        refused = file_index;
        continue;
      }
    } else {
      const HeldGroup held(*segment_, file_index, seen.index);
      if (!held.exists() || file.write_back_group(held) != 0) continue;
    }
    for (const std::uint32_t other : seen.slot) {
      if (other != kNone && drop_slot(other)) ++freed;
    }
  }
  return freed > 0;
}

std::unique_ptr<Medium> Session::open_log(const FileEntry& entry, std::string& why) {
  const std::string path = log_path(entry);
  switch (settings_.kind) {
    case StoreKind::pmem:
      return open_pmem_medium(path, why);
    case StoreKind::file:
      return open_file_medium(path, why);
    case StoreKind::simulated:
      if (auto medium = open_tmpfs_medium(path, why)) {
        return std::make_unique<SlowMedium>(std::move(medium), memory_);
      }
      return nullptr;
    case StoreKind::tmpfs:
    case StoreKind::automatic:
      break;
  }
  return open_tmpfs_medium(path, why);
}

void Session::delete_log(const FileEntry& entry) { real().unlink(log_path(entry).c_str()); }

std::string Session::log_path(const FileEntry& entry) const {
  return folder_ + "/" + std::to_string(entry.log_number) + ".redo";
}

}  // namespace nvio
