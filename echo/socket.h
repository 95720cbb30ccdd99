// What the socket transports share: owned descriptors, addresses, and receiving within a time.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tare::echo {

/// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// Address of a host given by number or name. Empty: any local address (IPv4).
SocketAddress resolve(const std::string& host, uint16_t port);

/// Throws std::runtime_error "`what`: reason of errno".
[[noreturn]] void throw_errno(const std::string& what);

Fd open_socket(int family, int type, int protocol);

/// Binds, saying in the error what was to be bound.
void bind_to(int fd, const std::string& host, uint16_t port);

/// Interrupts the calling thread's blocking calls with EINTR every `interval_ns`, so that a
/// receive can block without a timeout of its own and still be left. A socket timeout
/// (SO_RCVTIMEO) arms and cancels a timer in every call, which costs 2 to 3 % of a round trip.
class Ticker {
 public:
  /// Starts with the first call, for the thread that makes it.
  void start(int64_t interval_ns);
  Ticker() = default;
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  timer_t timer_ = {};
  bool started_ = false;
};

/// Sends one datagram, to `to` or where the socket is connected. False: the system refused it, or
/// `stop` was set while it waited for room in the socket. A Ticker's interruption refuses nothing.
bool send_datagram(int fd, std::span<const std::byte> bytes, const std::atomic<bool>& stop,
                   const SocketAddress* to = nullptr);

/// A connected socket of a client, whose one thread receives.
class Receiver {
 public:
  explicit Receiver(int64_t slice_ns) : slice_ns_(slice_ns) {}

  /// Receives one datagram or piece of stream. A `timeout_ns` equal to the slice is one system
  /// call, which blocks for about that long; another costs two; zero or less only looks.
  /// Returns the length; -1 if nothing came or the peer refuses for now. Throws
  /// ConnectionLost when a stream has ended, std::runtime_error for any other failure.
  ssize_t receive(int fd, std::span<std::byte> buffer, int64_t timeout_ns);

  /// From now on calls of this thread are interrupted once a slice.
  void tick() { ticker_.start(slice_ns_); }

 private:
  const int64_t slice_ns_;
  Ticker ticker_;
};

}  // namespace tare::echo
