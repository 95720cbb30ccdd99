#include "socket.h"

#include <netdb.h>
#include <poll.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "transport.h"

namespace tare::echo {

void throw_errno(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

SocketAddress resolve(const std::string& host, uint16_t port) {
  SocketAddress address;
  if (host.empty()) {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    std::memcpy(&address.storage, &any, sizeof any);
    address.length = sizeof any;
    return address;
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw std::runtime_error("cannot find the address of \"" + host + "\": " + gai_strerror(error));
  }
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

Fd open_socket(int family, int type, int protocol) {
  Fd fd(socket(family, type | SOCK_CLOEXEC, protocol));
  if (!fd) throw_errno("cannot open a socket");
  return fd;
}

void bind_to(int fd, const std::string& host, uint16_t port) {
  const SocketAddress address = resolve(host, port);
  if (bind(fd, address.get(), address.length) != 0) {
    throw_errno("cannot bind to " + (host.empty() ? "any address" : host) + " port " +
                std::to_string(port));
  }
}

void Ticker::start(int64_t interval_ns) {
  if (started_) return;
  struct sigaction action = {};
  action.sa_handler = [](int /*signal*/) {};  // that it comes is all; no SA_RESTART
  sigaction(SIGALRM, &action, nullptr);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
  event._sigev_un._tid = gettid();
  if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) throw_errno("cannot create a timer");
  started_ = true;
  const timespec interval = {.tv_sec = interval_ns / 1'000'000'000,
                             .tv_nsec = interval_ns % 1'000'000'000};
  const itimerspec every = {.it_interval = interval, .it_value = interval};
  if (timer_settime(timer_, 0, &every, nullptr) != 0) throw_errno("cannot start a timer");
}

Ticker::~Ticker() {
  if (started_) timer_delete(timer_);
}

bool send_datagram(int fd, std::span<const std::byte> bytes, const std::atomic<bool>& stop,
                   const SocketAddress* to) {
  const sockaddr* const address = to == nullptr ? nullptr : to->get();
  const socklen_t length = to == nullptr ? 0 : to->length;
  while (sendto(fd, bytes.data(), bytes.size(), 0, address, length) < 0) {
    if (errno != EINTR || stop.load(std::memory_order_relaxed)) return false;
  }
  return true;
}

ssize_t Receiver::receive(int fd, std::span<std::byte> buffer, int64_t timeout_ns) {
  ticker_.start(slice_ns_);
  int flags = 0;
  if (timeout_ns != slice_ns_) {
    flags = MSG_DONTWAIT;
    if (timeout_ns > 0) {
      pollfd readable = {.fd = fd, .events = POLLIN, .revents = 0};
      const timespec timeout = {.tv_sec = timeout_ns / 1'000'000'000,
                                .tv_nsec = timeout_ns % 1'000'000'000};
      if (ppoll(&readable, 1, &timeout, nullptr) <= 0) return -1;
    }
  }
  const ssize_t length = recv(fd, buffer.data(), buffer.size(), flags);
  if (length >= 0) return length;
  switch (errno) {
    case ECONNRESET:
    case ETIMEDOUT:
      throw ConnectionLost(std::string("the server closed the connection: ") +
                           std::strerror(errno));
    case EAGAIN:
    case EINTR:
    // What a router or a host said of a datagram, which is lost; the next one may arrive (ip(7)).
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EMSGSIZE:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EPROTO:
    case EACCES:
      return -1;
    default:
      throw_errno("cannot receive");
  }
}

}  // namespace tare::echo
