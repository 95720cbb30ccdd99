// UDP: the floor. One datagram a message; the client's socket is connected.
#include <cerrno>
#include <vector>

#include "clock.h"
#include "socket.h"
#include "transport.h"

namespace tare::echo {
namespace {

constexpr uint32_t kMaxDatagram = 65507;

class UdpServer final : public Server {
 public:
  explicit UdpServer(const Endpoint& endpoint)
      : work_ns_(endpoint.work_ns), slice_ns_(endpoint.receive_slice_ns) {
    socket_ = OpenSocket(Resolve(endpoint.bind, 0).family(), SOCK_DGRAM, 0);
    Bind(socket_.get(), endpoint.bind, endpoint.port);
  }

  void Serve(const std::atomic<bool>& stop) override {
    std::vector<std::byte> buffer(kMaxDatagram);
    Ticker ticker;
    ticker.Start(slice_ns_);
    while (!stop.load(std::memory_order_relaxed)) {
      SocketAddress from;
      from.length = sizeof from.storage;
      const ssize_t length = recvfrom(socket_.get(), buffer.data(), buffer.size(), 0,
                                      reinterpret_cast<sockaddr*>(&from.storage), &from.length);
      if (length < 0) {
        if (errno == EINTR || errno == ECONNREFUSED) continue;
        ThrowErrno("cannot receive requests");
      }
      ++counters.requests;
      const std::span<const std::byte> datagram(buffer.data(), static_cast<std::size_t>(length));
      if (!DecodeMessage(datagram)) {
        ++counters.bad;
        continue;
      }
      SpinFor(work_ns_);
      if (sendto(socket_.get(), datagram.data(), datagram.size(), 0, from.get(), from.length) >=
          0) {
        ++counters.replies;
      }
    }
  }

 private:
  Fd socket_;
  const int64_t work_ns_;
  const int64_t slice_ns_;
};

class UdpClient final : public Client {
 public:
  explicit UdpClient(const Endpoint& endpoint)
      : receiver_(endpoint.receive_slice_ns),
        request_(kHeaderBytes + endpoint.payload_bytes),
        reply_(kMaxDatagram) {
    const SocketAddress peer = Resolve(endpoint.peers.front(), endpoint.port);
    socket_ = OpenSocket(peer.family(), SOCK_DGRAM, 0);
    if (!endpoint.bind.empty()) Bind(socket_.get(), endpoint.bind, 0);
    if (connect(socket_.get(), peer.get(), peer.length) != 0) {
      ThrowErrno("cannot reach " + endpoint.peers.front());
    }
  }

  void Attach(ReplySink& sink) override { sink_ = &sink; }

  std::span<std::byte> Payload() override { return std::span(request_).subspan(kHeaderBytes); }

  bool Send(uint32_t requester, uint32_t sequence, uint64_t checksum) override {
    EncodeHeader(
        {.requester = requester, .sequence = sequence, .checksum = checksum, .payload = {}},
        static_cast<uint32_t>(request_.size() - kHeaderBytes),
        std::span(request_).first<kHeaderBytes>());
    return send(socket_.get(), request_.data(), request_.size(), 0) >= 0;
  }

  bool Wait(int64_t timeout_ns) override {
    const ssize_t length = receiver_.Receive(socket_.get(), reply_, timeout_ns);
    if (length < 0) return false;
    const int64_t received_ns = Now();
    const auto reply = DecodeMessage(std::span(reply_).first(static_cast<std::size_t>(length)));
    if (reply) {
      sink_->OnReply(*reply, received_ns);
    } else {
      sink_->OnMalformed();
    }
    return true;
  }

 private:
  Fd socket_;
  Receiver receiver_;
  std::vector<std::byte> request_;
  std::vector<std::byte> reply_;
  ReplySink* sink_ = nullptr;
};

}  // namespace

const Traits& TransportTraits() {
  static constexpr Traits traits = {.name = "udp",
                                    .summary = "UDP datagrams, blocking sockets",
                                    .has_port = true,
                                    .has_bind = true,
                                    .max_payload = kMaxDatagram - kHeaderBytes};
  return traits;
}

nlohmann::json DescribeTransport(const Endpoint& /*endpoint*/) {
  return {{"socket", "blocking"}, {"client_socket", "connected"}, {"header_bytes", kHeaderBytes}};
}

std::unique_ptr<Server> MakeServer(const Endpoint& endpoint) {
  return std::make_unique<UdpServer>(endpoint);
}

std::unique_ptr<Client> MakeClient(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<UdpClient>(endpoint);
}

}  // namespace tare::echo
