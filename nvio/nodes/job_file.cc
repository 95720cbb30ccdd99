#include "job_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "../cache/raise_to.h"
#include "../system/no_memory.h"
#include "file_state.h"
#include "job.h"
#include "placement.h"

namespace nvio {

JobFile::JobFile(Job& job, CachedFile& cached, const FileSettings& settings)
    : job_(job),
      cached_(cached),
      settings_(settings),
      nodes_(job.nodes()),
      node_(job.node()),
      home_(home_of(cached.entry().inode, job.nodes())),
      numbers_(job.nodes()),
      unsynced_(job.nodes()),
      unwritten_(job.nodes()) {
  for (auto& number : numbers_) number.store(kNone);
}

template <typename Act>
int JobFile::each_node(Act&& act) {
  for (std::uint32_t i = 0; i < nodes_; ++i) {
    if (const int error = act((home_ + i) % nodes_)) return error;
  }
  return 0;
}

// --- state -------------------------------------------------------------------------------------

// Where all have left the file, a manager that has writes of ours to do orders what we do with it.
bool JobFile::is_routed() const {
  return !cached_.is_plain() &&
         (cached_.entry().left.load(std::memory_order_acquire) == 0 || has_handed());
}

std::uint32_t JobFile::owner(std::uint64_t group) const { return owner_of(group, shares_, nodes_); }

int JobFile::fail(int error) {
  broken_.store(error);
  return error;
}

void JobFile::enter() {
  const int error = or_no_memory([this] { return learn_state(); });
  if (error != 0) fail(error);
}

int JobFile::learn_state() {
  // Left by all nodes, for good; and its name may have changed, by which managers open it.
  if (cached_.entry().left.load() != 0) return 0;
  Reply reply{};
  if (home_ == node_) {
    shares_ = shares_of(cached_, settings_.spread, nodes_);
    reply.state = state_of(cached_);
  } else {
    const std::lock_guard guard(opening_);
    if (numbers_[home_].load() == kNone) {
      if (const int error = open_at(home_, false, reply)) return error;
      shares_ = {reply.part, std::max<std::uint64_t>(reply.unit, 1)};
    } else {
      // Opened by this process already, which follows every change of state since.
      return 0;
    }
  }
  FileEntry& entry = cached_.entry();
  switch (reply.state) {
    case FileState::plain:
      // This node was told to cache from the start, the home node was not: it is now.
      if (!cached_.is_plain()) activate();
      break;
    case FileState::draining:
      cached_.leave_plain();
      break;
    case FileState::active:
      if (cached_.drain() == 0) cached_.activate_drained(reply.value);
      break;
    case FileState::leaving:
    case FileState::left:
      cached_.leave_plain();
      if (const int error = cached_.step_aside()) fail(error);
      if (reply.state == FileState::left) entry.left.store(1);
      break;
  }
  return 0;
}

void JobFile::activate() {
  std::uint64_t size = 0;
  const int error = each_node([&](std::uint32_t node) {
    if (node == node_) {
      const int failed = cached_.drain();
      size = std::max(size, cached_.real_file_size());
      return failed;
    }
    Reply reply{};
    const int failed = ask_simple(node, Operation::drain, 0, reply);
    size = std::max(size, reply.value);
    return failed;
  });
  if (error != 0) return;
  each_node([&](std::uint32_t node) {
    // The home node first, which knows the size: nobody caches before it does.
    if (node == node_) {
      cached_.activate_drained(size);
      return state_of(cached_) == FileState::active ? 0 : EBUSY;
    }
    Reply reply{};
    const int failed = ask_simple(node, Operation::activate, size, reply);
    return failed == 0 && reply.state != FileState::active ? EBUSY : failed;
  });
}

void JobFile::move_on() {
  FileState state = state_of(cached_);
  if (state == FileState::active && elsewhere_.load(std::memory_order_relaxed) != state) {
    state = elsewhere_.exchange(state);
  }
  const bool is_leaving = state == FileState::leaving;
  if (!is_leaving && state != FileState::draining &&
      (state != FileState::plain || !cached_.wants_cache())) {
    return;
  }
  const std::unique_lock guard(moving_, std::try_to_lock);
  const TimePoint now = clock_now();
  if (!guard || now < next_move_) return;
  if (!is_leaving) {
    activate();
    constexpr int kShare = 10;  // of the time that passes goes into this, at most
    next_move_ = clock_now() + kShare * (clock_now() - now);
    return;
  }
  // Whoever leads it is mostly at it, and writes back.
  constexpr std::chrono::seconds kPatience{1};
  if (std::exchange(seen_leaving_, true)) leave();
  next_move_ = clock_now() + kPatience;
}

int JobFile::step_aside() {
  await_queued();
  return leave();
}

int JobFile::leave() {
  if (nodes_ == 1) return cached_.step_aside();
  if (broken_.load() != 0) return broken_.load();
  if (cached_.entry().left.load() != 0) return 0;
  const auto everywhere = [&](Operation operation, auto&& here) {
    return each_node([&](std::uint32_t node) {
      if (is_here(node)) return here();
      Reply reply{};
      const int error = ask_simple(node, operation, 0, reply);
      // A plain write that is still under way there goes to the file, as all will.
      return operation == Operation::drain && error == EBUSY ? 0 : error;
    });
  };
  const int drained = everywhere(Operation::drain, [&] {
    const int error = cached_.drain();
    return error == EBUSY ? 0 : error;
  });
  if (drained != 0) return drained;
  if (const int error = everywhere(Operation::step_aside, [&] { return cached_.step_aside(); })) {
    return error;
  }
  return everywhere(Operation::leave, [&] {
    cached_.see_anew();
    cached_.entry().left.store(1);
    return 0;
  });
}

// --- size --------------------------------------------------------------------------------------

// The home node hears of every byte beyond what it has confirmed before the write returns.
int JobFile::tell_size(std::uint64_t end) {
  FileEntry& entry = cached_.entry();
  if (home_ == node_) {
    cached_.know_size(end);
    return 0;
  }
  if (end <= entry.confirmed.load(std::memory_order_relaxed)) return 0;
  Reply reply{};
  if (const int error = ask_simple(home_, Operation::grow, end, reply)) return error;
  raise_to(entry.confirmed, end);
  return 0;
}

std::uint64_t JobFile::size() {
  await_queued();
  if (nodes_ == 1 || home_ == node_ || !is_routed()) return cached_.size();
  Reply reply{};
  if (const int error = ask_simple(home_, Operation::size, 0, reply)) {
    fail(error);
    return cached_.size();
  }
  raise_to(cached_.entry().confirmed, reply.value);
  return reply.value;
}

int JobFile::truncate(std::uint64_t size) {
  await_queued();
  if (nodes_ == 1) return cached_.truncate(size);
  if (broken_.load() != 0) return broken_.load();
  if (!cached_.can_write_back()) return EINVAL;
  if (!is_routed()) return cached_.truncate(size);
  return each_node([&](std::uint32_t node) {
    if (is_here(node)) return cached_.truncate(size);
    unsynced_[node].store(1, std::memory_order_relaxed);
    Reply reply{};
    return ask_simple(node, Operation::truncate, size, reply);
  });
}

// --- what survives -----------------------------------------------------------------------------

int JobFile::settle(Operation operation, std::vector<std::atomic<std::uint8_t>>& pending) {
  // What another thread is asking for is no longer pending, and not done yet.
  const std::lock_guard lock(settling_);
  const std::uint64_t handed = handed_.load();
  int first = 0;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (pending[node].exchange(0) == 0) continue;
    Reply reply{};
    const int error = ask_simple(node, operation, 0, reply);
    if (error != 0) pending[node].store(1);
    if (first == 0) first = error;
  }
  if (first == 0) raise_to(settled_, handed);
  return first;
}

int JobFile::sync() {
  expects_windows_.store(false, std::memory_order_relaxed);
  int first = drain_queue();
  // Before this process does the same here: what our own manager has queued is in its store then.
  const int others = settle(Operation::sync, unsynced_);
  const int own = broken_.load() != 0 ? broken_.load() : cached_.sync();
  if (first == 0) first = own;
  return first != 0 ? first : others;
}

int JobFile::write_back() {
  int first = drain_queue();
  const int others = settle(Operation::write_back, unwritten_);
  const int own = cached_.write_back();
  if (first == 0) first = own;
  return first != 0 ? first : others;
}

int JobFile::write_back_of_reader() {
  return queued_.load() == nullptr && !has_handed() ? write_back() : 0;
}

void JobFile::prefetch(std::uint32_t share, std::uint32_t shares) {
  if (nodes_ == 1) {
    cached_.prefetch(share, shares);
    return;
  }
  if (broken_.load() != 0 || cached_.entry().left.load() != 0) return;
  if (cached_.is_plain()) activate();
  const std::uint64_t size = this->size();
  const std::uint64_t groups = (size + kGroupSize - 1) / kGroupSize;
  for (std::uint64_t i = groups * share / shares; i < groups * (share + 1) / shares; ++i) {
    const std::uint32_t node = owner(i);
    if (node == node_) {
      cached_.know_size(size);
      cached_.prefetch_group(i);
      continue;
    }
    Request request{};
    request.operation = Operation::prefetch;
    request.offset = i * kGroupSize;
    request.size = size;
    Reply reply{};
    if (ask(node, request, reply) != 0) return;
  }
}

// --- other nodes -------------------------------------------------------------------------------

int JobFile::open_at(std::uint32_t node, bool routed, Reply& reply) {
  const FileEntry& entry = cached_.entry();
  OpenRequest open;
  open.inode = entry.inode;
  open.access = (cached_.can_read() ? kReads : 0) | (cached_.can_write_back() ? kWrites : 0);
  open.settings = settings_;
  open.settings.stripe = entry.stripe;
  open.path = entry.opened_path();
  Request request{};
  request.operation = Operation::open;
  request.flags = routed ? kRouted : 0;
  const int error = job_.client(node).call(request, open_payload(open), reply);
  if (error == 0) numbers_[node].store(reply.file);
  return error;
}

int JobFile::ask(std::uint32_t node, const Request& request, Reply& reply,
                 std::span<const std::byte> payload, std::span<std::byte> room) {
  return or_no_memory([&] { return ask_opened(node, request, reply, payload, room); });
}

int JobFile::ask_opened(std::uint32_t node, Request request, Reply& reply,
                        std::span<const std::byte> payload, std::span<std::byte> room) {
  if (numbers_[node].load(std::memory_order_acquire) == kNone) {
    const std::lock_guard guard(opening_);
    if (numbers_[node].load() == kNone) {
      if (const int error = open_at(node, true, reply)) return error;
      // If this node caches, all were drained: that one may, too.
      if (state_of(cached_) == FileState::active && reply.state == FileState::draining) {
        Request activate{};
        activate.operation = Operation::activate;
        activate.file = numbers_[node].load();
        activate.size = cached_.entry().confirmed.load();
        const int error = job_.client(node).call(activate, {}, reply);
        if (error != 0 && error != EBUSY) return error;
      }
    }
  }
  request.file = numbers_[node].load(std::memory_order_relaxed);
  const int error = job_.client(node).call(request, payload, reply, room);
  if (reply.state == FileState::draining || reply.state == FileState::leaving) {
    elsewhere_.store(reply.state, std::memory_order_relaxed);
  }
  return error;
}

int JobFile::ask_simple(std::uint32_t node, Operation operation, std::uint64_t size, Reply& reply) {
  Request request{};
  request.operation = operation;
  request.size = size;
  return ask(node, request, reply);
}

int JobFile::let_go() {
  int first = 0;
  // The home node last: as long as any node has the file, its size and state are known there.
  for (std::uint32_t i = 1; i <= nodes_; ++i) {
    const std::uint32_t node = (home_ + i) % nodes_;
    const std::uint32_t number = numbers_[node].exchange(kNone);
    if (number == kNone || job_.client(node).is_broken()) continue;
    Request request{};
    request.operation = Operation::close;
    request.file = number;
    Reply reply{};
    const int error = job_.client(node).call(request, {}, reply);
    if (first == 0) first = error;
  }
  return first;
}

}  // namespace nvio
