#include "manager.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "../nodes/wire.h"
#include "../system/real.h"
#include "door.h"
#include "service.h"
#include "workers.h"

namespace nvio {
namespace {

constexpr unsigned kThreads = 8;
constexpr std::size_t kFirstRoom = 64 << 10;  // bytes of a connection's buffer; it grows on demand
constexpr std::size_t kMostRoom = sizeof(Request) + kMostPayload;
constexpr std::size_t kMostFiles = 4096;  // numbers a connection may hold
constexpr std::size_t kMostUnproven = 256;
// Above so many connections, one that received a large message gives the room for it back.
constexpr std::size_t kMany = 256;

enum class Stage : std::uint8_t { hello, proof, ready };

struct Connection {
  std::uint64_t number = 0;
  std::unique_ptr<Channel> channel;
  Stage stage = Stage::hello;
  bool busy = false;  // a thread works for it: nothing more is read meanwhile
  bool gone = false;
  std::vector<std::byte> in;
  std::size_t filled = 0;      // bytes of `in`
  std::vector<std::byte> out;  // what the channel did not take yet
  std::vector<ServedFile*> files;
  Nonce client{}, own{};
  std::uint32_t events = EPOLLIN;
};

class Manager {
 public:
  Manager(Session& session, std::vector<std::unique_ptr<Listener>> listeners,
          const ManagerOptions& options)
      : service_(session),
        options_(options),
        door_(std::move(listeners), options.node),
        scratch_(kMostPayload),
        workers_(kThreads) {}
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;
  ~Manager() {
    if (poll_ >= 0) real().close(poll_);
  }

  int run();

 private:
  // What an event is about: a listener's or connection's number, kept in its 64 bits.
  static constexpr std::uint64_t kWorkers = ~0ULL;
  static constexpr std::uint64_t kFirstConnection = 1 << 16;

  bool watch(int fd, std::uint64_t what);
  int patience() const;
  void accept_from(std::uint64_t listener);
  void look_at_peers();
  void on_event(Connection& connection, std::uint32_t events);
  void receive(Connection& connection);
  // Takes whole messages off the connection's buffer.
  void take(Connection& connection);
  std::size_t take_hello(Connection& connection);
  std::size_t take_proof(Connection& connection);
  std::size_t take_request(Connection& connection);
  void serve_later(Connection& connection, const Request& request,
                   std::span<const std::byte> payload);
  void finished(std::uint64_t number, Operation operation, std::uint32_t index, ServedFile* file,
                const Reply& reply, const std::vector<std::byte>& answer);
  void send(Connection& connection, const void* head, std::size_t head_size, const void* body,
            std::size_t body_size);
  void flush(Connection& connection);
  void want(Connection& connection);
  void drop(Connection& connection);

  Service service_;
  ManagerOptions options_;
  Door door_;
  std::vector<std::byte> scratch_;
  Workers workers_;
  int poll_ = -1;
  std::chrono::steady_clock::time_point looked_;
  std::uint64_t next_ = kFirstConnection;
  std::map<std::uint64_t, Connection> connections_;
  std::vector<std::uint64_t> dropped_;
  std::size_t ready_ = 0;  // peers that proved themselves
  bool had_peers_ = false;
  std::size_t working_ = 0;  // tasks that the threads have
};

bool Manager::watch(int fd, std::uint64_t what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = what;
  return epoll_ctl(poll_, EPOLL_CTL_ADD, fd, &event) == 0;
}

int Manager::run() {
  poll_ = epoll_create1(EPOLL_CLOEXEC);
  if (poll_ < 0 || !watch(workers_.descriptor(), kWorkers) || !door_.open(poll_)) return 1;
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
      } else if (what < kFirstConnection) {
        accept_from(what);
      } else if (const auto found = connections_.find(what);
                 found != connections_.end() && !found->second.gone) {
        on_event(found->second, events[static_cast<std::size_t>(i)].events);
      }
    }
    // A connection that a thread works for stays till that is done.
    std::erase_if(dropped_, [this](std::uint64_t number) {
      const auto found = connections_.find(number);
      if (found != connections_.end() && found->second.busy) return false;
      if (found != connections_.end()) connections_.erase(found);
      return true;
    });
  }
  return 0;
}

// Milliseconds to wait for an event.
int Manager::patience() const {
  constexpr int kUntilReopened = 100;
  if (door_.is_shut()) return kUntilReopened;
  if (!had_peers_) return static_cast<int>(options_.patience_seconds * 1000);
  return static_cast<int>(std::chrono::milliseconds(options_.silence.pulse()).count());
}

// Tells who waits that it is worked on, and lets go of those whose machine is gone.
void Manager::look_at_peers() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < options_.silence.pulse()) return;
  looked_ = now;
  Reply working{};
  working.magic = kWorkingMagic;
  for (auto& [number, connection] : connections_) {
    if (connection.gone) continue;
    if (connection.channel->is_dead()) {
      drop(connection);
    } else if (connection.busy && connection.out.empty()) {
      send(connection, &working, sizeof working, nullptr, 0);
    }
  }
}

void Manager::accept_from(std::uint64_t listener) {
  std::unique_ptr<Channel> channel = door_.accept(listener, ready_);
  if (channel == nullptr) return;
  const bool is_full = connections_.size() >= Door::most();
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
  connection.in.resize(kFirstRoom);
  if (!watch(connection.channel->descriptor(), number)) drop(connection);
}

void Manager::on_event(Connection& connection, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush(connection);
  if (!connection.gone && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive(connection);
}

void Manager::receive(Connection& connection) {
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

void Manager::take(Connection& connection) {
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

std::size_t Manager::take_hello(Connection& connection) {
  Hello hello{};
  if (connection.filled < sizeof hello) return 0;
  std::memcpy(&hello, connection.in.data(), sizeof hello);
  Welcome welcome{};
  if (!is_hello(hello, options_.node) ||
      getrandom(connection.own.data(), connection.own.size(), 0) !=
          static_cast<ssize_t>(connection.own.size())) {
    drop(connection);
    return 0;
  }
  connection.client = hello.nonce;
  std::memcpy(welcome.magic, kWireMagic, sizeof kWireMagic);
  welcome.version = kWireVersion;
  welcome.node = options_.node;
  welcome.nonce = connection.own;
  welcome.proof = manager_proof(options_.secret, connection.client, connection.own);
  connection.stage = Stage::proof;
  send(connection, &welcome, sizeof welcome, nullptr, 0);
  return sizeof hello;
}

std::size_t Manager::take_proof(Connection& connection) {
  Digest shown{};
  if (connection.filled < shown.size()) return 0;
  std::memcpy(shown.data(), connection.in.data(), shown.size());
  if (!equal_digests(shown, client_proof(options_.secret, connection.client, connection.own))) {
    drop(connection);
    return 0;
  }
  connection.stage = Stage::ready;
  ++ready_;
  had_peers_ = true;
  return shown.size();
}

std::size_t Manager::take_request(Connection& connection) {
  if (connection.filled < sizeof(Request)) return 0;
  const auto request = parse_request(
      std::span<const std::byte, sizeof(Request)>(connection.in.data(), sizeof(Request)));
  if (!request) {
    drop(connection);
    return 0;
  }
  const std::size_t whole = sizeof(Request) + request->payload;
  if (connection.filled < whole) {
    if (connection.in.size() < whole) connection.in.resize(kMostRoom);
    return 0;
  }
  const std::span<const std::byte> payload(connection.in.data() + sizeof(Request),
                                           request->payload);
  const bool has_file =
      request->file < connection.files.size() && connection.files[request->file] != nullptr;
  if (has_file) {
    Reply reply{};
    reply.magic = kReplyMagic;
    if (service_.serve_at_once(*request, *connection.files[request->file], payload, reply,
                               scratch_)) {
      send(connection, &reply, sizeof reply, scratch_.data(), reply.payload);
      return whole;
    }
  }
  serve_later(connection, *request, payload);
  return whole;
}

void Manager::serve_later(Connection& connection, const Request& request,
                          std::span<const std::byte> payload) {
  struct Work {
    Request request;
    std::vector<std::byte> payload, answer;
    ServedFile* file = nullptr;
    Reply reply{};
  };
  const auto work = std::make_shared<Work>();
  work->request = request;
  work->payload.assign(payload.begin(), payload.end());
  const bool is_new = request.operation == Operation::open;
  if (!is_new && request.file < connection.files.size()) {
    work->file = connection.files[request.file];
  }
  connection.busy = true;
  ++working_;
  want(connection);
  workers_.add(
      [this, work] {
        work->reply = service_.serve(work->request, work->file, work->payload, work->answer);
      },
      [this, work, number = connection.number] {
        --working_;
        finished(number, work->request.operation, work->request.file, work->file, work->reply,
                 work->answer);
      });
}

void Manager::finished(std::uint64_t number, Operation operation, std::uint32_t index,
                       ServedFile* file, const Reply& reply, const std::vector<std::byte>& answer) {
  Connection& connection = connections_.at(number);
  connection.busy = false;
  Reply told = reply;
  if (operation == Operation::open && file != nullptr) {
    auto free = std::find(connection.files.begin(), connection.files.end(), nullptr);
    if (free == connection.files.end() && connection.files.size() < kMostFiles) {
      free = connection.files.insert(free, nullptr);
    }
    if (free == connection.files.end() || connection.gone) {
      ++working_;
      workers_.add([this, file] { service_.release(file); }, [this] { --working_; });
      told.error = EMFILE;
    } else {
      *free = file;
      told.file = static_cast<std::uint32_t>(free - connection.files.begin());
    }
  } else if (operation == Operation::close && index < connection.files.size()) {
    connection.files[index] = nullptr;
  }
  if (connection.gone) {
    drop(connection);
    return;
  }
  send(connection, &told, sizeof told, answer.data(), answer.size());
  if (connection.gone) return;
  want(connection);
  take(connection);
}

void Manager::send(Connection& connection, const void* head, std::size_t head_size,
                   const void* body, std::size_t body_size) {
  std::size_t sent = 0;
  if (connection.out.empty()) {
    const std::array<iovec, 2> vectors{
        {{const_cast<void*>(head), head_size}, {const_cast<void*>(body), body_size}}};
    const ssize_t done =
        connection.channel->send_some(vectors.data(), body_size == 0 ? 1 : 2, false);
    if (done < 0 && errno != EAGAIN) {
      drop(connection);
      return;
    }
    sent = static_cast<std::size_t>(std::max<ssize_t>(done, 0));
    if (sent == head_size + body_size) return;
  }
  const auto keep = [&](const void* data, std::size_t size) {
    const std::size_t skip = std::min(sent, size);
    sent -= skip;
    const auto* bytes = static_cast<const std::byte*>(data);
    connection.out.insert(connection.out.end(), bytes + skip, bytes + size);
  };
  keep(head, head_size);
  keep(body, body_size);
  want(connection);
}

void Manager::flush(Connection& connection) {
  if (connection.out.empty()) return;
  const iovec left{connection.out.data(), connection.out.size()};
  const ssize_t done = connection.channel->send_some(&left, 1, false);
  if (done < 0 && errno == EAGAIN) return;
  if (done < 0) {
    drop(connection);
    return;
  }
  connection.out.erase(connection.out.begin(), connection.out.begin() + done);
  if (!connection.out.empty()) return;
  want(connection);
  take(connection);
}

// Reads from nobody who has an answer outstanding: what a peer can make us keep is bounded.
void Manager::want(Connection& connection) {
  const std::uint32_t events = (connection.busy || !connection.out.empty() ? 0U : EPOLLIN) |
                               (connection.out.empty() ? 0U : EPOLLOUT);
  if (events == connection.events || connection.gone) return;
  connection.events = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection.number;
  epoll_ctl(poll_, EPOLL_CTL_MOD, connection.channel->descriptor(), &event);
}

void Manager::drop(Connection& connection) {
  if (!connection.gone) {
    connection.gone = true;
    epoll_ctl(poll_, EPOLL_CTL_DEL, connection.channel->descriptor(), nullptr);
    if (connection.stage == Stage::ready) --ready_;
    dropped_.push_back(connection.number);
  }
  if (connection.busy) return;
  for (ServedFile*& file : connection.files) {
    if (file == nullptr) continue;
    ++working_;
    workers_.add([this, held = file] { service_.release(held); }, [this] { --working_; });
    file = nullptr;
  }
}

}  // namespace

int run_manager(Session& session, std::vector<std::unique_ptr<Listener>> listeners,
                const ManagerOptions& options) {
  return Manager(session, std::move(listeners), options).run();
}

}  // namespace nvio
