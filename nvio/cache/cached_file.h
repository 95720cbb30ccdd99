// One file as one process sees it through the cache. All processes of the job on the node share
// the same entry and blocks, so what one wrote the others read at once.
//
// Threads may call everything at the same time. Methods that return int return 0 or an errno
// value; transfers return like pread and pwrite.
#pragma once

#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "../store/segment.h"
#include "admission.h"
#include "block_map.h"
#include "counters.h"
#include "file_run.h"
#include "session.h"

namespace nvio {

class CachedFile {
 public:
  CachedFile(Session& session, std::uint32_t index);
  ~CachedFile();
  CachedFile(const CachedFile&) = delete;
  CachedFile& operator=(const CachedFile&) = delete;

  // Whether this is one of the descriptors that we keep for ourselves.
  bool owns(int fd) const;

  // Lends a descriptor of the file: its access mode decides what this process can do with it. Never
  // one that appends, or takes only whole sectors, or waits for the disk at each write: then ours
  // is opened anew. False where no descriptor could be had.
  bool lend(int fd);
  // What the program does to the descriptors that it lent changes ours no more. Returns 0 or an
  // errno value.
  int stand_alone();

  // `large`: a piece of a transfer that goes round the cache for its size.
  ssize_t read(std::uint64_t offset, void* buffer, std::size_t length, bool large = false);
  ssize_t write(std::uint64_t offset, const void* buffer, std::size_t length, bool large = false);
  // For who reads bytes to change some of them and writes all back, as MPIs do to reach a view's
  // small pieces (windows): bytes between the pieces may be another job's. So what the file has is
  // read from the file, and what is written is in the file on return.
  ssize_t read_window(std::uint64_t offset, void* buffer, std::size_t length);
  ssize_t write_window(std::uint64_t offset, const void* buffer, std::size_t length);
  // Many short runs of bytes, in order and side by side in `buffer`: the same, without a call for
  // each. False where one of them was not done in full.
  bool read_runs(std::span<const FileRun> runs, char* buffer);
  bool write_runs(std::span<const FileRun> runs, const char* buffer);
  // Held while pieces of a range are written: they would be undone by an MPI that has read the
  // range before, to change other pieces of it and write all of it. It locks the range meanwhile,
  // and so do we, where one may: in the file system, which asks a server for each lock, and has
  // ranks whose pieces alternate wait for each other.
  class Undisturbed {
   public:
    Undisturbed(const CachedFile& file, std::uint64_t begin, std::uint64_t end);
    ~Undisturbed();
    Undisturbed(const Undisturbed&) = delete;
    Undisturbed& operator=(const Undisturbed&) = delete;
    bool is_held() const { return under_way_.owns_lock() || is_locked_; }

   private:
    bool set(short type) const;
    int fd_;
    std::uint64_t begin_, end_;
    std::unique_lock<SharedLock> under_way_;
    bool is_locked_ = false;
  };
  // A process of the job is about to lock a range. Returns once no pieces are written without.
  void expect_locks();
  // Whether they should be: what the cache does not take would be a call of the file for each.
  bool takes_runs(Direction direction) const;
  bool is_active() const { return entry_.aside.load() == 0 && entry_.mode.load() == kActive; }
  // Whether the next ones should be all the same: to learn how long such a call takes, or since the
  // file is about to be cached. Who left the rest to the MPI then would leave holes in what other
  // ranks write, each of them a write-back of its own.
  bool is_undecided(Direction direction) const;
  // Whether a write goes round the cache for its size, or as a long one in a stream. Asked once for
  // each write: by `write` itself, or, where several nodes share it out, before that.
  bool is_large_write(std::uint64_t offset, std::uint64_t length) {
    const bool stream = write_pattern_.note_is_stream(offset, length);
    return stream || length >= entry_.bypass_size;
  }
  std::uint64_t size() const;
  int truncate(std::uint64_t size);

  // MPI_File_sync: all written so far is visible to the job and survives as the store does.
  int sync();
  // All written so far is in the file (visible; not yet durable there). A process that may only
  // read it leaves that to those who wrote, or to the last who has it open.
  int write_back();
  // The same for who hears of it by this call alone: with what the file system tells only at a
  // close, as NFS does of a quota. What it has refused is dirty again.
  int write_back_and_flush();
  // The same as write_back, durable; the redo log is empty afterwards.
  int checkpoint();
  // Writes back, forgets, and leaves every later call to the file itself.
  int step_aside();
  // Drops blocks of the file: all, or those whose bytes are in it.
  enum class Forget : std::uint8_t { all, written };
  void forget(Forget what);
  // Fetches this process's share of the file (the paper's whole prefetch).
  void prefetch(std::uint32_t share, std::uint32_t shares);
  // Fetches one MiB; false when the store is full.
  bool prefetch_group(std::uint64_t group_index);
  // The program has the MPI delete the file as it closes it. Whoever closes it last here looks
  // whether it has no name left, and writes it back if it has: the deletion was refused, or it has
  // another name.
  void expect_deletion();
  // Nobody can open the file any more, or wants it: nothing is written back.
  void discard();
  // Looks again at what tells the file from others, where that may change: on an overlay with the
  // first opening for writing, without handle and birth with every entry of its folder.
  void renew_mark();
  // Whether the file that the entry is about has been deleted.
  bool has_no_name() const { return names() == 0; }
  // What the last handle in the job does. What cannot be written stays, also in the redo log.
  int finish();
  // What this process does at its own last use of the file: gives its descriptors back. Returns
  // what the file system tells of them, which may be the first that it says of what it could not
  // write.
  int close();

  FileEntry& entry() { return entry_; }
  std::uint32_t index() const { return index_; }
  bool can_write_back() const { return write_fd_ >= 0; }
  bool can_read() const { return read_fd_ >= 0; }

  // --- when several nodes cache the file (nodes.cc): one node alone must not decide -------------
  // Nothing is cached at any node: a call goes to the file, as long as that stays so.
  bool is_plain() const { return entry_.mode.load(std::memory_order_acquire) == kPassive; }
  ssize_t read_plain(std::uint64_t offset, void* buffer, std::size_t length);
  std::optional<ssize_t> write_plain(std::uint64_t offset, const void* buffer, std::size_t length);
  // Whether what was sampled says that the file should be cached.
  bool wants_cache() const;
  // Ends the plain state for every transfer that begins from now on.
  void leave_plain();
  // The same. 0 if no plain write is under way any more and all nodes see what was written plainly
  // here; EBUSY: ask again, later.
  int drain();
  // What was written to the file from here is where other nodes' clients find it.
  int show_others();
  // Has this node's client, which others' writes may not reach, ask its server what the file has
  // by now, as it does at an open (close-to-open). What is opened for that stays open: a close
  // would give up the process's locks of the file.
  void see_anew();
  // The same by a descriptor that is the caller's to close; -1 with errno.
  int open_anew() const;
  // Begins to cache once drained; the file is `size` bytes long or longer. Where the file's lock is
  // held or its size cannot be had, it stays drained, to be activated later.
  void activate_drained(std::uint64_t size);
  void know_size(std::uint64_t size) { grow(size); }
  std::uint64_t real_file_size() const;
  // Served at once from what is cached, without waiting for anything; false: not done. The range
  // must lie in one group.
  bool try_read(std::uint64_t offset, void* buffer, std::size_t length);
  bool try_write(std::uint64_t offset, const void* buffer, std::size_t length);

  // Writes back the dirty bytes of a group whose bucket's lock is held. Till they are durable, too,
  // the blocks stay, and know what was written: the fsync may fail.
  enum class Till : std::uint8_t { written, durable };
  int write_back_group(const HeldGroup& held, Till till = Till::written);

 private:
  enum class Outcome : std::uint8_t { done, need_room, not_served };

  // Whether small transfers belong in the cache: as nvio finds, or the user says.
  bool pays(Direction direction) const { return !is_automatic() || is_slow(entry_, direction); }
  bool is_automatic() const { return entry_.admit == static_cast<std::uint8_t>(Admit::automatic); }
  bool nothing_cached() const {
    if (entry_.aside.load(std::memory_order_relaxed) != 0) return true;
    const std::uint32_t mode = entry_.mode.load(std::memory_order_acquire);
    return mode == kPassive || mode == kDraining;
  }
  // As the file system says; nothing when it does not.
  std::optional<std::uint64_t> size_in_file() const;
  // The first step to caching, or the next one where another process or an earlier call could not
  // go on. Called as transfers are made that went to the file.
  void activate();
  bool seems_slow(Direction direction) const {
    return entry_.mode.load() == kDraining || is_slow(entry_, direction);
  }
  // Whether bytes may be taken into the cache.
  bool admits() const;
  ssize_t read_real(std::uint64_t offset, char* buffer, std::size_t length);
  ssize_t read_around(std::uint64_t offset, char* buffer, std::size_t length);
  ssize_t read_large(std::uint64_t offset, char* buffer, std::size_t length);
  // A block's bytes, of which so many are about to be read or written.
  char* bytes_of(const Piece& piece) {
    session_.memory().access(piece.length());
    return segment_.block(piece.slot) + piece.begin;
  }
  // What lies in one MiB. Serves what is cached; what is not is fetched if that is allowed and
  // seems to pay.
  Outcome read_group(std::uint64_t offset, char* buffer, std::size_t length, bool fetching) {
    HeldGroup held = blocks_.hold(offset);
    return read_held(held, offset, buffer, length, fetching);
  }
  Outcome read_held(HeldGroup& held, std::uint64_t offset, char* buffer, std::size_t length,
                    bool fetching);
  // Calls some(runs, buffer), which does as many of the first ones as it can and returns how many,
  // and one(offset, buffer, length) for the run after these.
  template <typename Byte, typename Some, typename One>
  bool each_run(std::span<const FileRun> runs, Byte* buffer, Some&& some, One&& one);
  // How many of the runs, the first ones, can be done under one lock, and were.
  template <typename Byte, typename One>
  std::size_t runs_of_group(std::span<const FileRun> runs, Byte* buffer, One&& one);
  // Whether what a read lacks may be fetched at all.
  bool may_fetch() const;
  Outcome fetch(HeldGroup& held, std::uint64_t first, std::uint64_t last);
  Outcome write_group(std::uint64_t offset, const char* buffer, std::size_t length, bool admit,
                      bool last_try) {
    HeldGroup held = blocks_.hold(offset);
    return write_held(held, offset, buffer, length, admit, last_try);
  }
  Outcome write_held(HeldGroup& held, std::uint64_t offset, const char* buffer, std::size_t length,
                     bool admit, bool last_try);
  int fetch_descriptor();
  int write_back_descriptor();
  // What says that a write is under way, if there is one left for it.
  std::unique_lock<SharedLock> begin_write() const;
  // The same for pieces that no lock is needed for.
  std::unique_lock<SharedLock> begin_pieces() const;
  ssize_t write_passive(std::uint64_t offset, const char* buffer, std::size_t length);
  void lay_over(const Piece& piece, char* bytes);
  bool write_direct(std::uint64_t offset, const char* buffer, std::size_t length);
  // The same where blocks may have copies.
  bool write_past(const HeldGroup& held, std::uint64_t offset, const char* buffer,
                  std::size_t length);
  void grow(std::uint64_t end);
  int sync_locked();
  int checkpoint_locked();
  int write_back_all(Till till);
  // Has a network file system write what it took, by a close of a copy: none of this process's
  // locks may be held, which a close gives up. Bytes that it refuses are dirty again if written
  // till they are durable.
  int flush();
  // Of bytes that were truncated nothing is left in the cache.
  void forget_beyond(std::uint64_t size);
  int log_changes();
  void settle();
  bool has_log_records() const;
  bool open_log();
  int start_log();
  void publish(const LogPosition& position);
  int durable_in_file();
  FileIdentity identity() const;
  void mark_log();
  void settle_deletion();
  // Of the file in its file system; 1 if that does not tell.
  std::uint64_t names() const;
  bool has_other_names() const { return names() > 1; }

  Session& session_;
  Segment& segment_;
  Counters& counters_;
  FileEntry& entry_;
  std::uint32_t first_write_;  // the one of the entry's writes_under_way that is tried first
  std::uint32_t index_;
  BlockMap blocks_;
  int read_fd_ = -1;
  int write_fd_ = -1;
  mutable std::mutex lending_;  // guards the next two
  bool stands_alone_ = false;
  std::vector<int> anew_;  // opened by see_anew
  std::once_flag fetch_fd_opened_;
  std::atomic<int> fetch_fd_{-1};  // goes past the kernel's cache
  std::once_flag write_back_fd_opened_;
  // Where the program opened the file for reading only: never used for its own writes. When it
  // cannot be had, minus the errno value.
  std::atomic<int> write_back_fd_{-EBADF};
  ReadPattern pattern_;
  WritePattern write_pattern_;
  std::atomic<std::uint32_t> read_calls_{0};
  std::atomic<std::uint32_t> write_calls_{0};
  std::unique_ptr<Medium> log_medium_;
};

}  // namespace nvio
