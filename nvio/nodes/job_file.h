// One file as one process of a job on several nodes sees it: every byte belongs to a node by its
// offset alone, and is read and written there; here by load and store, at another node by its
// manager. On one node it is the node's cache and nothing else.
//
// While nothing of the file is cached anywhere (FileState::plain), each process goes to the file
// itself, as without nvio. To leave that state a process takes all nodes through two steps, the
// file's home node first: drain (transfers go to the owner of the bytes, which still caches
// nothing), then, when all are drained, activate. A node where a plain write is still under way is
// not drained, and nobody waits for it. Stepping aside goes the same way back. A process that is
// killed in between leaves a mixture that is slower, and right; whoever transfers something finds
// its own node in it and goes on. Whoever opens the file asks the home node for its state after its
// own node has an entry for it: so one of the two notices.
//
// The home node also knows the size. Every node knows a lower bound of it, and asks beyond.
//
// Threads may call everything at the same time. Methods that return int return 0 or an errno value;
// transfers return like pread and pwrite.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "../cache/cached_file.h"
#include "../system/clock.h"
#include "placement.h"
#include "wire.h"
#include "write_queue.h"

namespace nvio {

class Job;

class JobFile {
 public:
  JobFile(Job& job, CachedFile& cached, const FileSettings& settings);
  JobFile(const JobFile&) = delete;
  JobFile& operator=(const JobFile&) = delete;

  ssize_t read(std::uint64_t offset, void* buffer, std::size_t length);
  ssize_t write(std::uint64_t offset, const void* buffer, std::size_t length);
  // A view's pieces, in order, side by side in `buffer`. False where not all of them were done:
  // then the MPI does it again, and tells.
  bool read_runs(std::span<const FileRun> runs, char* buffer);
  bool write_runs(std::span<const FileRun> runs, const char* buffer);
  // Whether what they need is cached here and at other nodes, or may be.
  bool takes_runs(Direction direction) const;
  // Whether that is not known yet: the first ones tell.
  bool is_undecided(Direction direction) const;
  // Whether the file is at least so long.
  bool reaches(std::uint64_t end);
  // The same of a window (cache/cached_file.h).
  ssize_t read_window(std::uint64_t offset, void* buffer, std::size_t length);
  ssize_t write_window(std::uint64_t offset, const void* buffer, std::size_t length);
  // From now on, till the next sync, any transfer that the MPI makes may be one of a window.
  void expect_windows() { expects_windows_.store(true, std::memory_order_relaxed); }
  bool expects_windows() const { return expects_windows_.load(std::memory_order_relaxed); }
  // The same, but returns before it is done. Other processes see the bytes after this one's next
  // sync or close, which also tells what went wrong; this process sees them at once. Queued here,
  // or by the managers of the nodes that have the bytes, also of this one; here too where there are
  // none. While nothing of the file is cached anywhere, no manager has any of it: then it is done.
  ssize_t write_later(std::uint64_t offset, const void* buffer, std::size_t length);
  ssize_t hand_over(std::uint64_t offset, const void* buffer, std::size_t length);
  std::uint64_t size();
  int truncate(std::uint64_t size);
  int sync();
  int write_back();
  // At the close of what could only read. Once writes are queued it does nothing: their errors,
  // which are told once, are for the close or sync of who wrote.
  int write_back_of_reader();
  // Whether write_back by one process does it for all of them.
  bool is_written_back_by_any() const { return nodes_ == 1 && queued_.load() == nullptr; }
  int step_aside();
  // Waits for what this process has queued.
  void await_queued() { wait_for_overlap(0, INT64_MAX); }
  // Whether all calls go to the file itself, for good.
  bool is_left() const {
    const FileEntry& entry = cached_.entry();
    return (nodes_ == 1 ? entry.aside : entry.left).load() != 0;
  }
  void prefetch(std::uint32_t share, std::uint32_t shares);

  CachedFile& cached() { return cached_; }
  FileEntry& entry() { return cached_.entry(); }
  bool owns(int fd) const { return cached_.owns(fd); }

 private:
  friend class Job;

  // Learns the file's state from its home node. Called at every opening, before any transfer.
  void enter();
  int learn_state();
  // Gives back what was opened at other nodes.
  int let_go();

  // Whether transfers go to the owner of the bytes.
  bool is_routed() const;
  // Whether managers may still have writes of this process to do.
  bool has_handed() const { return handed_.load() != settled_.load(); }
  // Whether what a node is asked is done by this process itself. Not where that node's manager may
  // have writes of ours to do: it knows what comes first.
  bool is_here(std::uint32_t node) const { return node == node_ && !has_handed(); }
  // Asks the nodes of `pending` (written to since they were last asked), and forgets that they are.
  int settle(Operation operation, std::vector<std::atomic<std::uint8_t>>& pending);
  std::uint32_t owner(std::uint64_t group) const;
  ssize_t read_now(std::uint64_t offset, void* buffer, std::size_t length);
  // `flags` of the requests (wire.h), also for the part that is done here.
  ssize_t routed_read(std::uint64_t offset, char* buffer, std::size_t length, std::uint16_t flags);
  ssize_t routed_write(std::uint64_t offset, const char* buffer, std::size_t length,
                       std::uint16_t flags);
  ssize_t read_at(std::uint32_t node, std::uint64_t offset, char* buffer, std::size_t length,
                  std::uint16_t flags);
  ssize_t write_at(std::uint32_t node, std::uint64_t offset, const char* buffer, std::size_t length,
                   std::uint16_t flags);
  void note_written(std::uint32_t node);
  // Calls transfer(node, runs, buffer) for the runs of each MiB, which has a node; each(run,
  // buffer) for what lies in two of them, and while nothing is cached.
  template <typename Byte, typename Transfer, typename Each>
  bool each_group_of_runs(std::span<const FileRun> runs, Byte* buffer, Transfer&& transfer,
                          Each&& each);
  bool read_runs_at(std::uint32_t node, std::span<const FileRun> runs, char* buffer,
                    std::uint64_t length);
  bool write_runs_at(std::uint32_t node, std::span<const FileRun> runs, const char* buffer,
                     std::uint64_t length);
  int tell_size(std::uint64_t end);
  // Goes as far towards caching at all nodes as can be done without waiting.
  void activate();
  // Takes the file on to the state to which it is on its way, at some node, or should be. Called
  // after each transfer: so it comes there whatever became of those who tried before.
  void move_on();
  int leave();
  int open_at(std::uint32_t node, bool routed, Reply& reply);
  // One operation at another node, which is made to open the file if it has not.
  int ask(std::uint32_t node, const Request& request, Reply& reply,
          std::span<const std::byte> payload = {}, std::span<std::byte> room = {});
  int ask_opened(std::uint32_t node, Request request, Reply& reply,
                 std::span<const std::byte> payload, std::span<std::byte> room);
  int ask_simple(std::uint32_t node, Operation operation, std::uint64_t size, Reply& reply);
  // Calls act(node) for every node, the home node first, till one fails.
  template <typename Act>
  int each_node(Act&& act);
  int fail(int error);
  WriteQueue* begin_queue();
  // Waits for queued writes; returns what went wrong with them.
  int drain_queue();
  bool is_queued(std::uint64_t offset, std::size_t length) const;
  void wait_for_overlap(std::uint64_t offset, std::size_t length);
  // `flags`: kQueue, or none.
  ssize_t write_now(std::uint64_t offset, const void* buffer, std::size_t length,
                    std::uint16_t flags = 0);

  Job& job_;
  CachedFile& cached_;
  FileSettings settings_;
  std::uint32_t handles_ = 0;  // guarded by the job
  std::uint32_t nodes_, node_, home_;
  Shares shares_{0, 1};                                  // as the home node decided
  std::mutex opening_;                                   // guards opening at other nodes
  std::vector<std::atomic<std::uint32_t>> numbers_;      // the file's at each node, or kNone
  std::vector<std::atomic<std::uint8_t>> unsynced_;      // nodes written to since the last sync
  std::vector<std::atomic<std::uint8_t>> unwritten_;     // and since the last write-back
  std::atomic<FileState> elsewhere_{FileState::active};  // a node's that lags behind the others
  std::mutex moving_;                                    // guards the next two
  TimePoint next_move_{};
  bool seen_leaving_ = false;
  std::atomic<bool> expects_windows_{false};
  std::mutex queueing_;  // guards making the queue
  std::unique_ptr<WriteQueue> queue_;
  std::atomic<WriteQueue*> queued_{nullptr};
  std::atomic<std::uint64_t> handed_{0};   // writes that managers have queued
  std::atomic<std::uint64_t> settled_{0};  // of these, the first ones, which are done
  std::mutex settling_;                    // held while nodes are asked to settle
  std::atomic<int> broken_{0};             // errno: this process does not know the file's state
};

}  // namespace nvio
