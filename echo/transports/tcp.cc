// TCP with TCP_NODELAY; a message is its header and the payload that the header announces.
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "assembler.h"
#include "byte_client.h"
#include "clock.h"
#include "signals.h"
#include "socket.h"
#include "transport.h"

namespace tare::echo {
namespace {

constexpr uint32_t kMaxPayload = 1 << 26;

void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// A server that takes no byte for so long takes no more: both may wait for each other, too.
constexpr int64_t kPatienceNs = 5'000'000'000;

// Sends all, unless the peer takes nothing: until `stop` is set, or for `patience_ns`, if that is
// not 0. A Ticker interrupts the call.
bool send_all(int fd, std::span<const std::byte> bytes, const std::atomic<bool>& stop,
              int64_t patience_ns = 0) {
  int64_t since = 0;
  while (!bytes.empty()) {
    const ssize_t length = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (length >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(length));
      since = 0;
      continue;
    }
    if (errno != EINTR || stop.load(std::memory_order_relaxed)) return false;
    if (patience_ns == 0) continue;
    if (since == 0) since = now_ns();
    if (now_ns() - since > patience_ns) return false;
  }
  return true;
}

// A thread a connection, each blocking: a request wakes only the thread that answers it.
class TcpServer final : public Server {
 public:
  explicit TcpServer(const Endpoint& endpoint)
      : slice_ns_(endpoint.receive_slice_ns), work_ns_(endpoint.work_ns) {
    listening_ = open_socket(resolve(endpoint.bind, 0).family(), SOCK_STREAM, 0);
    const int on = 1;
    setsockopt(listening_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bind_to(listening_.get(), endpoint.bind, endpoint.port);
    if (listen(listening_.get(), SOMAXCONN) != 0) throw_errno("cannot listen");
  }

  void serve(const std::atomic<bool>& stop) override {
    std::list<std::jthread> conversations;
    pollfd incoming = {.fd = listening_.get(), .events = POLLIN, .revents = 0};
    while (!stop.load(std::memory_order_relaxed)) {
      if (poll(&incoming, 1, static_cast<int>(slice_ns_ / 1'000'000)) <= 0) continue;
      const int fd = accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      conversations.emplace_back([this, &stop, fd] { converse(Fd(fd), stop); });
    }
  }

 private:
  void converse(Fd connection, const std::atomic<bool>& stop) {
    send_at_once(connection.get());
    Ticker ticker;
    ticker.start(slice_ns_);
    Assembler assembler(1 << 16);
    while (!stop.load(std::memory_order_relaxed)) {
      const auto room = assembler.room();
      const ssize_t length = recv(connection.get(), room.data(), room.size(), 0);
      if (length == 0) return;
      if (length < 0) {
        if (errno == EINTR) continue;
        return;
      }
      const bool readable = assembler.add(static_cast<std::size_t>(length), kMaxPayload,
                                          [&](std::span<const std::byte> request) {
                                            ++counters.requests;
                                            spin_for(work_ns_);
                                            if (send_all(connection.get(), request, stop))
                                              ++counters.replies;
                                          });
      if (!readable) {
        ++counters.bad;
        return;
      }
    }
  }

  Fd listening_;
  const int64_t slice_ns_;
  const int64_t work_ns_;
};

class TcpClient final : public ByteClient {
 public:
  explicit TcpClient(const Endpoint& endpoint)
      : ByteClient(endpoint),
        receiver_(endpoint.receive_slice_ns),
        bind_(endpoint.bind),
        peer_(resolve(endpoint.peers.front(), endpoint.port)),
        assembler_(message_bytes()) {}

  bool wait(int64_t timeout_ns) override {
    if (!connection_) {  // the server is not there yet; the next request tries again
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<int64_t>(timeout_ns, 0)));
      return false;
    }
    const ssize_t length = receiver_.receive(connection_.get(), assembler_.room(), timeout_ns);
    if (length < 0) return false;
    if (length == 0) throw ConnectionLost("the server closed the connection");
    const int64_t received_ns = now_ns();
    bool whole = false;
    const bool readable =
        assembler_.add(static_cast<std::size_t>(length), static_cast<uint32_t>(payload().size()),
                       [&](std::span<const std::byte> bytes) {
                         whole = true;
                         deliver(bytes, received_ns);
                       });
    if (!readable) {
      sink().on_malformed();
      throw ConnectionLost("the stream of replies cannot be read on");
    }
    return whole;
  }

 private:
  bool transmit(std::span<std::byte> request, uint32_t sequence) override {
    if (!connection_ && !connect()) return false;
    // A stream loses none; and of several large ones both ends would wait for each other.
    if (sequence == kProbeSequence && std::exchange(probed_, true)) return true;
    if (send_all(connection_.get(), request, g_stop, kPatienceNs)) return true;
    if (g_stop.load(std::memory_order_relaxed)) return false;
    throw ConnectionLost("the server takes no more requests");  // nor would it half of one
  }

  bool connect() {
    Fd fd = open_socket(peer_.family(), SOCK_STREAM, 0);
    send_at_once(fd.get());
    if (!bind_.empty()) bind_to(fd.get(), bind_, 0);
    // On Linux this limits how long connect may take.
    timeval patience = {.tv_sec = 1, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (::connect(fd.get(), peer_.get(), peer_.length) != 0) return false;
    patience = {};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    receiver_.tick();  // or nothing would end the first request to a server that takes none
    connection_ = std::move(fd);
    return true;
  }

  Receiver receiver_;
  const std::string bind_;
  const SocketAddress peer_;
  Fd connection_;
  bool probed_ = false;
  Assembler assembler_;
};

}  // namespace

const Traits& transport_traits() {
  static constexpr Traits traits = {.name = "tcp",
                                    .summary = "TCP with TCP_NODELAY, blocking sockets",
                                    .has_port = true,
                                    .has_bind = true,
                                    .max_payload = kMaxPayload};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& /*endpoint*/) {
  return {{"socket", "blocking"}, {"nodelay", true}, {"header_bytes", kHeaderBytes}};
}

std::unique_ptr<Server> make_server(const Endpoint& endpoint) {
  return std::make_unique<TcpServer>(endpoint);
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<TcpClient>(endpoint);
}

}  // namespace tare::echo
