#include "echo_server.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "../nodes/wire.h"
#include "../transport/transport.h"
#include "harness.h"

namespace nvio::bench {
namespace {

struct Peer {
  std::unique_ptr<Channel> channel;
  std::vector<char> in = std::vector<char>(64 << 10);
  std::size_t filled = 0;
};

// False when the peer is gone.
bool answer(Peer& peer, const std::vector<char>& bytes) {
  const iovec room{peer.in.data() + peer.filled, peer.in.size() - peer.filled};
  const ssize_t got = peer.channel->receive_some(&room, 1, false);
  if (got <= 0) return false;
  peer.filled += static_cast<std::size_t>(got);
  EchoRequest request{};
  if (peer.filled < sizeof request) return true;
  std::memcpy(&request, peer.in.data(), sizeof request);
  if (peer.filled < sizeof request + request.payload) return true;
  peer.filled = 0;
  const iovec reply{const_cast<char*>(bytes.data()), request.answer};
  return peer.channel->send_some(&reply, 1, false) == static_cast<ssize_t>(request.answer);
}

[[noreturn]] void serve(Listener& listener) {
  const int poll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(poll, EPOLL_CTL_ADD, listener.descriptor(), &event);
  const std::vector<char> bytes(64 << 10, 'e');
  std::map<int, Peer> peers;
  bool had_peers = false;
  while (!had_peers || !peers.empty()) {
    epoll_event events[64];
    const int count = epoll_wait(poll, events, 64, -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == 0) {
        std::unique_ptr<Channel> channel = listener.accept();
        if (channel == nullptr) continue;
        event.data.fd = channel->descriptor();
        epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
        peers[event.data.fd].channel = std::move(channel);
        had_peers = true;
      } else if (!answer(peers[fd], bytes)) {
        peers.erase(fd);
      }
    }
  }
  _exit(0);
}

}  // namespace

int start_echo_server(const std::string& path) {
  std::string why;
  const std::unique_ptr<Listener> listener = listen_at("unix:" + path, {}, why);
  if (listener == nullptr) throw std::runtime_error(why);
  return start_processes(1, [&](unsigned) { serve(*listener); }).front();
}

}  // namespace nvio::bench
