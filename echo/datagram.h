// Server and client of a transport of datagrams over IP, one a message: what differs is the
// socket's protocol. A transport of that kind is one file that names it, as transports/udp.cc does.
#pragma once

#include <cerrno>
#include <vector>

#include "byte_client.h"
#include "clock.h"
#include "signals.h"
#include "socket.h"
#include "transport.h"

namespace tare::echo {

inline constexpr uint32_t kMaxDatagram = 65507;

class DatagramServer final : public Server {
 public:
  /// `protocol` is the socket's, 0 for UDP.
  explicit DatagramServer(const Endpoint& endpoint, int protocol = 0)
      : socket_(open_socket(resolve(endpoint.bind, 0).family(), SOCK_DGRAM, protocol)),
        work_ns_(endpoint.work_ns),
        slice_ns_(endpoint.receive_slice_ns) {
    bind_to(socket_.get(), endpoint.bind, endpoint.port);
  }

  void serve(const std::atomic<bool>& stop) override {
    std::vector<std::byte> buffer(kMaxDatagram);
    Ticker ticker;
    ticker.start(slice_ns_);
    while (!stop.load(std::memory_order_relaxed)) {
      SocketAddress from;
      from.length = sizeof from.storage;
      const ssize_t length = recvfrom(socket_.get(), buffer.data(), buffer.size(), 0,
                                      reinterpret_cast<sockaddr*>(&from.storage), &from.length);
      if (length < 0) {
        if (errno == EINTR || errno == ECONNREFUSED) continue;
        throw_errno("cannot receive requests");
      }
      ++counters.requests;
      const std::span<const std::byte> datagram(buffer.data(), static_cast<std::size_t>(length));
      if (!decode_message(datagram)) {
        ++counters.bad;
        continue;
      }
      spin_for(work_ns_);
      if (send_datagram(socket_.get(), datagram, stop, &from)) ++counters.replies;
    }
  }

 private:
  const Fd socket_;
  const int64_t work_ns_;
  const int64_t slice_ns_;
};

/// With a connected socket.
class DatagramClient final : public ByteClient {
 public:
  /// `protocol` as the server's.
  explicit DatagramClient(const Endpoint& endpoint, int protocol = 0)
      : ByteClient(endpoint), receiver_(endpoint.receive_slice_ns), reply_(kMaxDatagram) {
    const SocketAddress peer = resolve(endpoint.peers.front(), endpoint.port);
    socket_ = open_socket(peer.family(), SOCK_DGRAM, protocol);
    if (!endpoint.bind.empty()) bind_to(socket_.get(), endpoint.bind, 0);
    if (connect(socket_.get(), peer.get(), peer.length) != 0) {
      throw_errno("cannot reach " + endpoint.peers.front());
    }
  }

  bool wait(int64_t timeout_ns) override {
    const ssize_t length = receiver_.receive(socket_.get(), reply_, timeout_ns);
    if (length < 0) return false;
    const int64_t received_ns = now_ns();
    deliver(std::span(reply_).first(static_cast<std::size_t>(length)), received_ns);
    return true;
  }

 private:
  bool transmit(std::span<std::byte> request, uint32_t /*sequence*/) override {
    return send_datagram(socket_.get(), request, g_stop);
  }

  Fd socket_;
  Receiver receiver_;
  std::vector<std::byte> reply_;
};

}  // namespace tare::echo
