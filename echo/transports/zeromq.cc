// ZeroMQ over TCP: a DEALER asks a ROUTER, so that several requests may be outstanding.
#include <poll.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <vector>

#include "byte_client.h"
#include "clock.h"
#include "transport.h"

namespace tare::echo {
namespace {

[[noreturn]] void throw_zmq(const std::string& what) {
  throw std::runtime_error(what + ": " + zmq_strerror(zmq_errno()));
}

// A context with its one socket.
class Socket {
 public:
  Socket(int type, int64_t receive_slice_ns)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    if (socket_ == nullptr) throw_zmq("cannot open a ZeroMQ socket");
    const int64_t milliseconds = receive_slice_ns / 1'000'000;
    set(ZMQ_RCVTIMEO, milliseconds > 0 ? static_cast<int>(milliseconds) : 1);
    set(ZMQ_LINGER, 0);
  }
  ~Socket() {
    if (socket_ != nullptr) zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void* get() const { return socket_; }

 private:
  void set(int option, int value) { zmq_setsockopt(socket_, option, &value, sizeof value); }

  void* context_;
  void* socket_;
};

bool nothing_came() { return errno == EAGAIN || errno == EINTR; }

class ZmqServer final : public Server {
 public:
  explicit ZmqServer(const Endpoint& endpoint)
      : socket_(ZMQ_ROUTER, endpoint.receive_slice_ns), work_ns_(endpoint.work_ns) {
    const std::string address = "tcp://" + (endpoint.bind.empty() ? "*" : endpoint.bind) + ":" +
                                std::to_string(endpoint.port);
    if (zmq_bind(socket_.get(), address.c_str()) != 0) throw_zmq("cannot bind to " + address);
  }

  void serve(const std::atomic<bool>& stop) override {
    std::array<std::byte, 256> who;  // a routing identity has at most 255 bytes
    zmq_msg_t request;
    while (!stop.load(std::memory_order_relaxed)) {
      const int who_length = zmq_recv(socket_.get(), who.data(), who.size(), 0);
      if (who_length < 0) {
        if (nothing_came()) continue;
        throw_zmq("cannot receive requests");
      }
      ++counters.requests;
      zmq_msg_init(&request);
      zmq_msg_recv(&request, socket_.get(), 0);
      const std::span<const std::byte> bytes(static_cast<const std::byte*>(zmq_msg_data(&request)),
                                             zmq_msg_size(&request));
      if (zmq_msg_more(&request) != 0 || !decode_message(bytes)) {
        ++counters.bad;
        drop_rest(request);
        continue;
      }
      spin_for(work_ns_);
      zmq_send(socket_.get(), who.data(), static_cast<std::size_t>(who_length), ZMQ_SNDMORE);
      if (zmq_msg_send(&request, socket_.get(), 0) >= 0) {
        ++counters.replies;
      } else {
        zmq_msg_close(&request);
      }
    }
  }

 private:
  void drop_rest(zmq_msg_t& part) {
    while (zmq_msg_more(&part) != 0) zmq_msg_recv(&part, socket_.get(), 0);
    zmq_msg_close(&part);
  }

  Socket socket_;
  const int64_t work_ns_;
};

class ZmqClient final : public ByteClient {
 public:
  explicit ZmqClient(const Endpoint& endpoint)
      : ByteClient(endpoint),
        socket_(ZMQ_DEALER, endpoint.receive_slice_ns),
        slice_ns_(endpoint.receive_slice_ns),
        reply_(message_bytes() + 1) {
    const std::string source = endpoint.bind.empty() ? "" : endpoint.bind + ":0;";
    const std::string address =
        "tcp://" + source + endpoint.peers.front() + ":" + std::to_string(endpoint.port);
    if (zmq_connect(socket_.get(), address.c_str()) != 0) throw_zmq("cannot connect to " + address);
    std::size_t length = sizeof readable_.fd;
    zmq_getsockopt(socket_.get(), ZMQ_FD, &readable_.fd, &length);
    readable_.events = POLLIN;
  }

  bool wait(int64_t timeout_ns) override {
    if (timeout_ns == slice_ns_) return receive(0);
    if (receive(ZMQ_DONTWAIT)) return true;
    if (timeout_ns <= 0) return false;
    // zmq_poll counts milliseconds; its descriptor can be waited for more finely.
    const timespec timeout = {.tv_sec = timeout_ns / 1'000'000'000,
                              .tv_nsec = timeout_ns % 1'000'000'000};
    if (ppoll(&readable_, 1, &timeout, nullptr) <= 0) return false;
    return receive(ZMQ_DONTWAIT);
  }

 private:
  bool transmit(std::span<std::byte> request, uint32_t /*sequence*/) override {
    return zmq_send(socket_.get(), request.data(), request.size(), ZMQ_DONTWAIT) >= 0;
  }

  bool receive(int flags) {
    // What is longer than the buffer is cut off; the one byte of excess tells.
    const int length = zmq_recv(socket_.get(), reply_.data(), reply_.size(), flags);
    if (length < 0) {
      if (nothing_came()) return false;
      throw_zmq("cannot receive replies");
    }
    const int64_t received_ns = now_ns();
    const auto whole = std::min(static_cast<std::size_t>(length), reply_.size());
    deliver(std::span(reply_).first(whole), received_ns);
    return true;
  }

  Socket socket_;
  const int64_t slice_ns_;
  std::vector<std::byte> reply_;
  pollfd readable_ = {};
};

}  // namespace

const Traits& transport_traits() {
  static constexpr Traits traits = {.name = "zeromq",
                                    .summary = "ZeroMQ over TCP, DEALER to ROUTER",
                                    .has_port = true,
                                    .has_bind = true,
                                    .max_payload = 1 << 26};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& /*endpoint*/) {
  int major = 0;
  int minor = 0;
  int patch = 0;
  zmq_version(&major, &minor, &patch);
  return {{"stack",
           {{"name", "ZeroMQ"},
            {"version",
             std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch)}}},
          {"configuration", {{"client", "DEALER"}, {"server", "ROUTER"}, {"linger_ms", 0}}},
          {"header_bytes", kHeaderBytes}};
}

std::unique_ptr<Server> make_server(const Endpoint& endpoint) {
  return std::make_unique<ZmqServer>(endpoint);
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<ZmqClient>(endpoint);
}

}  // namespace tare::echo
