// Sockets: unix ones on the same machine, TCP between machines.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "../system/real.h"
#include "transport.h"

namespace nvio {
namespace {

constexpr int kMostVectors = 8;

void set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);  // TCP's fail on unix sockets: no matter
}

// Where nothing is on its way the kernel probes a host that may be gone without a word.
void notice_dead_host(int fd, Silence silence) {
  constexpr int kProbes = 4;
  const int between = static_cast<int>(silence.dead_host().count()) / (kProbes + 2);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2 * between);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, between);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

void bound_waits(int fd, Silence silence) {
  const timeval most{silence.most.count(), 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
}

// What signals interrupt is begun anew, and then waits as long as the socket lets it: often
// interrupted, it would have no end.
template <typename Call>
auto repeated(Silence silence, Call&& call) {
  const auto give_up = std::chrono::steady_clock::now() + silence.most;
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
    if (std::chrono::steady_clock::now() < give_up) continue;
    errno = ETIMEDOUT;
    return result;
  }
}

class Socket : public Channel {
 public:
  Socket(int fd, Silence silence) : fd_(fd), silence_(silence) {
    set(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() override { real().close(fd_); }

  ssize_t send_some(const iovec* vectors, int count, bool wait) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors);
    message.msg_iovlen = static_cast<std::size_t>(count);
    const int flags = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
    const ssize_t sent = repeated(silence_, [&] { return sendmsg(fd_, &message, flags); });
    if (sent < 0 && errno == EAGAIN && wait) errno = ETIMEDOUT;
    return sent;
  }

  ssize_t receive_some(const iovec* vectors, int count, bool wait) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors);
    message.msg_iovlen = static_cast<std::size_t>(count);
    const int flags = wait ? 0 : MSG_DONTWAIT;
    const ssize_t got = repeated(silence_, [&] { return recvmsg(fd_, &message, flags); });
    if (got < 0 && errno == EAGAIN && wait) errno = ETIMEDOUT;
    return got;
  }

  int descriptor() const override { return fd_; }

  // Not TCP_USER_TIMEOUT, which also ends what a stopped process does not take off its socket.
  bool is_dead() const override {
    tcp_info info{};
    socklen_t size = sizeof info;
    const auto most = std::chrono::milliseconds(silence_.dead_host()).count();
    return getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_unacked != 0 &&
           info.tcpi_last_ack_recv > most;
  }

  bool is_same_user() const override {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && size == sizeof peer &&
           peer.pid != 0 && peer.uid == geteuid();
  }

 private:
  int fd_;
  Silence silence_;
};

class SocketListener : public Listener {
 public:
  SocketListener(int fd, Silence silence, std::string address)
      : fd_(fd), silence_(silence), address_(std::move(address)) {}
  SocketListener(const SocketListener&) = delete;
  SocketListener& operator=(const SocketListener&) = delete;
  ~SocketListener() override { real().close(fd_); }

  int descriptor() const override { return fd_; }
  std::unique_ptr<Channel> accept() override {
    const int peer = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) return nullptr;
    notice_dead_host(peer, silence_);
    return std::make_unique<Socket>(peer, silence_);
  }
  std::string address() const override { return address_; }

 private:
  int fd_;
  Silence silence_;
  std::string address_;
};

// A unix socket's address. A path longer than its 107 bytes is reached by way of its folder, which
// `folder` then holds open and the caller closes.
bool unix_address(const std::string& path, sockaddr_un& address, int& folder) {
  address = {};
  address.sun_family = AF_UNIX;
  std::string name = path;
  if (name.size() >= sizeof address.sun_path) {
    const std::size_t slash = path.rfind('/');
    folder = real().open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return false;
    name = "/proc/self/fd/" + std::to_string(folder) + path.substr(slash);
    if (name.size() >= sizeof address.sun_path) {
      errno = ENAMETOOLONG;
      return false;
    }
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  return true;
}

// Calls use(socket, address, length) for a new socket at each address that `where` stands for, till
// it returns true; returns that socket or -1 with errno.
template <typename Use>
int with_socket(const std::string& where, bool passive, Use&& use) {
  if (where.starts_with("unix:")) {
    sockaddr_un address{};
    int folder = -1;
    int fd = -1;
    if (unix_address(where.substr(5), address, folder)) {
      fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    if (fd >= 0 && !use(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address)) {
      const int error = errno;
      real().close(fd);
      errno = error;
      fd = -1;
    }
    const int error = errno;
    if (folder >= 0) real().close(folder);
    errno = error;
    return fd;
  }
  const std::size_t colon = where.rfind(':');
  if (!where.starts_with("tcp:") || colon < 4) {
    errno = EINVAL;
    return -1;
  }
  const std::string host = where.substr(4, colon - 4);
  const std::string port = where.substr(colon + 1);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &wanted, &found) != 0) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  int fd = -1;
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) {
    fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !use(fd, at->ai_addr, at->ai_addrlen)) {
      error = errno;
      real().close(fd);
      fd = -1;
    }
  }
  freeaddrinfo(found);
  errno = error;
  return fd;
}

// Drops the first `done` bytes of the vectors.
void advance(iovec*& vectors, int& count, std::size_t done) {
  while (count > 0 && done >= vectors->iov_len) {
    done -= vectors->iov_len;
    ++vectors;
    --count;
  }
  if (count > 0) {
    vectors->iov_base = static_cast<char*>(vectors->iov_base) + done;
    vectors->iov_len -= done;
  }
}

}  // namespace

std::unique_ptr<Channel> connect_to(const std::string& address, Silence silence, std::string& why) {
  const int fd =
      with_socket(address, false, [silence](int socket, const sockaddr* peer, socklen_t length) {
        notice_dead_host(socket, silence);
        bound_waits(socket, silence);
        return repeated(silence, [&] { return connect(socket, peer, length); }) == 0;
      });
  if (fd < 0) {
    why = failed("cannot connect to " + address);
    return nullptr;
  }
  return std::make_unique<Socket>(fd, silence);
}

std::unique_ptr<Listener> listen_at(const std::string& address, Silence silence, std::string& why) {
  constexpr int kBacklog = 1024;
  std::string actual = address;
  const int fd = with_socket(address, true, [&](int socket, const sockaddr* own, socklen_t length) {
    if (bind(socket, own, length) != 0 || listen(socket, kBacklog) != 0) return false;
    fcntl(socket, F_SETFL, O_NONBLOCK);
    if (own->sa_family == AF_UNIX) return true;
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return false;
    const std::uint16_t port = bound.ss_family == AF_INET6
                                   ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                   : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
    actual = address.substr(0, address.rfind(':') + 1) + std::to_string(ntohs(port));
    return true;
  });
  if (fd < 0) {
    why = failed("cannot listen at " + address);
    return nullptr;
  }
  return std::make_unique<SocketListener>(fd, silence, actual);
}

int send_all(Channel& channel, const iovec* vectors, int count) {
  std::array<iovec, kMostVectors> left{};
  if (count > kMostVectors) return EINVAL;
  std::copy(vectors, vectors + count, left.begin());
  iovec* at = left.data();
  advance(at, count, 0);
  while (count > 0) {
    const ssize_t sent = channel.send_some(at, count, true);
    if (sent < 0) return errno;
    advance(at, count, static_cast<std::size_t>(sent));
  }
  return 0;
}

int receive_all(Channel& channel, void* data, std::size_t length) {
  iovec vector{data, length};
  iovec* at = &vector;
  int count = 1;
  advance(at, count, 0);
  while (count > 0) {
    const ssize_t got = channel.receive_some(at, count, true);
    if (got < 0) return errno;
    if (got == 0) return ECONNRESET;
    advance(at, count, static_cast<std::size_t>(got));
  }
  return 0;
}

}  // namespace nvio
