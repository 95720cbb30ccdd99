#include "loop.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "../system/real.h"
#include "watched.h"

namespace nvio {
namespace {

constexpr unsigned kThreads = 8;
constexpr std::size_t kFirstRoom = 64 << 10;  // bytes of a connection's buffer; it grows on demand
constexpr std::size_t kMostUnproven = 256;
// Above so many connections, one that received a large message gives the room for it back.
constexpr std::size_t kMany = 256;

}  // namespace

Loop::Loop(Session& session, std::vector<std::unique_ptr<Listener>> listeners,
           const ManagerOptions& options)
    : service_(session),
      options_(options),
      nodes_(session.nodes()),
      door_(std::move(listeners), options.node),
      scratch_(kMostPayload),
      workers_(kThreads),
      links_(
          *this,
          [settings = session.settings(), own = options.node](std::uint32_t node) {
            return reach_manager(settings, node, own);
          },
          options.node, kMostRoom) {}

Loop::~Loop() {
  if (poll_ >= 0) real().close(poll_);
}

int Loop::run() {
  poll_ = epoll_create1(EPOLL_CLOEXEC);
  if (poll_ < 0 || !watch(poll_, EPOLL_CTL_ADD, workers_.descriptor(), kWorkers) ||
      !door_.open(poll_) || !links_.open(poll_, kFirstLink)) {
    return 1;
  }
  while (!had_peers_ || ready_ != 0 || working_ != 0) {
    std::array<epoll_event, 64> events{};
    const int count = epoll_wait(poll_, events.data(), static_cast<int>(events.size()), patience());
    if (count < 0 && errno != EINTR) return 1;
    if (count == 0 && !had_peers_ && !door_.is_shut()) return 0;
    look_at_peers();
    if (door_.is_shut()) door_.reopen();
    for (int i = 0; i < count; ++i) {
      const std::uint64_t what = events[static_cast<std::size_t>(i)].data.u64;
      if (what == kWorkers) {
        workers_.collect();
      } else if (what >= kFirstLink) {
        links_.on_event(what, events[static_cast<std::size_t>(i)].events);
      } else if (what < kFirstConnection) {
        accept_from(what);
      } else if (const auto found = connections_.find(what);
                 found != connections_.end() && !found->second.gone) {
        on_event(found->second, events[static_cast<std::size_t>(i)].events);
      }
    }
    links_.settle();
    // A connection that a thread works for stays till that is done.
    std::erase_if(dropped_, [this](std::uint64_t number) {
      const auto found = connections_.find(number);
      if (found != connections_.end() && found->second.busy) return false;
      if (found != connections_.end()) {
        links_.forget(number);
        connections_.erase(found);
      }
      return true;
    });
  }
  return 0;
}

// Milliseconds to wait for an event.
int Loop::patience() const {
  constexpr int kUntilReopened = 100;
  if (door_.is_shut()) return kUntilReopened;
  if (!had_peers_) return static_cast<int>(options_.patience_seconds * 1000);
  return static_cast<int>(std::chrono::milliseconds(options_.silence.pulse()).count());
}

// Tells who waits that it is worked on, and lets go of those whose machine is gone.
void Loop::look_at_peers() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < options_.silence.pulse()) return;
  looked_ = now;
  Reply working{};
  working.magic = kWorkingMagic;
  for (auto& [number, connection] : connections_) {
    if (connection.gone) continue;
    if (connection.channel != nullptr && connection.channel->is_dead()) {
      drop(connection);
    } else if (connection.busy && connection.out.empty()) {
      send(connection, bytes_of(working));
    }
  }
  links_.look();
}

void Loop::accept_from(std::uint64_t listener) {
  std::unique_ptr<Channel> channel = door_.accept(listener, ready_);
  if (channel == nullptr) return;
  const bool is_full = descriptors() >= Door::most();
  if (is_full && connections_.size() == ready_) {
    door_.refuse(*channel, ready_);
    return;
  }
  if (is_full || connections_.size() - ready_ > kMostUnproven) {
    const auto oldest = std::find_if(connections_.begin(), connections_.end(), [](const auto& at) {
      return at.second.stage != Stage::ready && !at.second.gone;
    });
    if (oldest != connections_.end()) drop(oldest->second);
  }
  const std::uint64_t number = next_++;
  Connection& connection = connections_[number];
  connection.number = number;
  connection.channel = std::move(channel);
  connection.is_local = connection.channel->is_same_user();
  connection.in.resize(kFirstRoom);
  if (!watch(poll_, EPOLL_CTL_ADD, connection.channel->descriptor(), number)) drop(connection);
}

void Loop::on_event(Connection& connection, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush(connection);
  if (!connection.gone && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive(connection);
}

void Loop::receive(Connection& connection) {
  if (connection.busy) {
    // Only the end of the peer is looked for; it is told by the next byte that does not come.
    if (connection.filled == connection.in.size()) drop(connection);
  }
  if (connection.gone) return;
  const iovec room{connection.in.data() + connection.filled,
                   connection.in.size() - connection.filled};
  const ssize_t got = connection.channel->receive_some(&room, 1, false);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) {
    drop(connection);
    return;
  }
  connection.filled += static_cast<std::size_t>(got);
  take(connection);
}

void Loop::take(Connection& connection) {
  while (!connection.gone && !connection.busy && connection.out.empty()) {
    std::size_t used = 0;
    switch (connection.stage) {
      case Stage::hello:
        used = take_hello(connection);
        break;
      case Stage::proof:
        used = take_proof(connection);
        break;
      case Stage::ready:
        used = take_request(connection);
        break;
    }
    if (used == 0) return;
    std::memmove(connection.in.data(), connection.in.data() + used, connection.filled - used);
    connection.filled -= used;
    if (connections_.size() > kMany && connection.filled <= kFirstRoom &&
        connection.in.size() > kFirstRoom) {
      connection.in.resize(kFirstRoom);
      connection.in.shrink_to_fit();
    }
  }
}

// The kernel knows a process of this machine, and that need not read the secret.
std::span<const std::uint8_t> Loop::secret_for(const Connection& connection) const {
  if (connection.is_local) return {};
  return options_.secret;
}

std::size_t Loop::take_hello(Connection& connection) {
  Hello hello{};
  if (connection.filled < sizeof hello) return 0;
  std::memcpy(&hello, connection.in.data(), sizeof hello);
  const auto welcome =
      connection.greeting.answer(hello, options_.node, nodes_, secret_for(connection));
  if (!welcome) {
    drop(connection);
    return 0;
  }
  connection.stage = Stage::proof;
  send(connection, bytes_of(*welcome));
  return sizeof hello;
}

std::size_t Loop::take_proof(Connection& connection) {
  Digest shown{};
  if (connection.filled < shown.size()) return 0;
  std::memcpy(shown.data(), connection.in.data(), shown.size());
  if (!connection.greeting.is_proof(shown, secret_for(connection))) {
    drop(connection);
    return 0;
  }
  if (connection.greeting.caller() != kProcess) {
    take_manager(connection);
    return 0;
  }
  connection.stage = Stage::ready;
  ++ready_;
  had_peers_ = true;
  return shown.size();
}

void Loop::send(Connection& connection, std::span<const std::byte> head,
                std::span<const std::byte> body) {
  if (connection.lane) {
    links_.answer(*connection.lane, head, body);
  } else if (!connection.put(head, body)) {
    drop(connection);
  } else {
    connection.want(poll_);
  }
}

void Loop::flush(Connection& connection) {
  if (connection.out.empty()) return;
  if (!connection.flush()) {
    drop(connection);
  } else if (connection.out.empty()) {
    connection.want(poll_);
    take(connection);
  }
}

void Loop::drop(Connection& connection) {
  if (!connection.gone) {
    connection.gone = true;
    if (connection.stage == Stage::ready) --ready_;
    if (connection.lane) {
      --lanes_;
      links_.end(*connection.lane);
    } else {
      epoll_ctl(poll_, EPOLL_CTL_DEL, connection.channel->descriptor(), nullptr);
    }
    dropped_.push_back(connection.number);
  }
  if (connection.is_relayed) connection.busy = false;
  if (connection.busy) return;
  for (ServedFile*& file : connection.files) {
    if (file == nullptr) continue;
    ++working_;
    workers_.add(
        [this, held = file, number = connection.number] { service_.release(held, number); },
        [this] { --working_; });
    file = nullptr;
  }
}

int run_manager(Session& session, std::vector<std::unique_ptr<Listener>> listeners,
                const ManagerOptions& options) {
  return Loop(session, std::move(listeners), options).run();
}

}  // namespace nvio
