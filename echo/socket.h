// What the socket transports share: owned descriptors, addresses, and receiving within a time.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

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
SocketAddress Resolve(const std::string& host, uint16_t port);

/// Throws std::runtime_error "`what`: reason of errno".
[[noreturn]] void ThrowErrno(const std::string& what);

Fd OpenSocket(int family, int type, int protocol);

/// Binds, saying in the error what was to be bound.
void Bind(int fd, const std::string& host, uint16_t port);

/// Makes blocking receives return after `timeout_ns` without data.
void SetReceiveTimeout(int fd, int64_t timeout_ns);

/// Receives one datagram or piece of stream. A `timeout_ns` equal to `slice_ns`, to which the
/// socket's own receive timeout has been set, costs one system call; another costs two; zero or
/// less only looks. Returns the length; -1 if nothing came or the peer refuses for now.
/// Throws std::runtime_error for any other failure.
ssize_t ReceiveWithin(int fd, std::span<std::byte> buffer, int64_t timeout_ns, int64_t slice_ns);

}  // namespace tare::echo
