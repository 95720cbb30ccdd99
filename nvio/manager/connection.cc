#include "connection.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "watched.h"

namespace nvio {

std::optional<Welcome> Greeting::answer(const Hello& hello, std::uint32_t node, std::uint32_t nodes,
                                        std::span<const std::uint8_t> secret) {
  if (!is_hello(hello, node) || (hello.caller != kProcess && hello.caller >= nodes) ||
      getrandom(own_.data(), own_.size(), 0) != static_cast<ssize_t>(own_.size())) {
    return std::nullopt;
  }
  client_ = hello.nonce;
  caller_ = hello.caller;
  Welcome welcome{};
  std::memcpy(welcome.magic, kWireMagic, sizeof kWireMagic);
  welcome.version = kWireVersion;
  welcome.node = node;
  welcome.nonce = own_;
  welcome.proof = manager_proof(secret, client_, own_);
  return welcome;
}

bool Greeting::is_proof(const Digest& shown, std::span<const std::uint8_t> secret) const {
  return equal_digests(shown, client_proof(secret, client_, own_));
}

bool Connection::put(std::span<const std::byte> head, std::span<const std::byte> body) {
  std::size_t sent = 0;
  if (out.empty()) {
    const std::array<iovec, 2> vectors{{{const_cast<std::byte*>(head.data()), head.size()},
                                        {const_cast<std::byte*>(body.data()), body.size()}}};
    const ssize_t done = channel->send_some(vectors.data(), body.empty() ? 1 : 2, false);
    if (done < 0 && errno != EAGAIN) return false;
    sent = static_cast<std::size_t>(std::max<ssize_t>(done, 0));
  }
  for (const auto& piece : {head, body}) {
    const std::size_t skip = std::min(sent, piece.size());
    sent -= skip;
    out.insert(out.end(), piece.begin() + static_cast<std::ptrdiff_t>(skip), piece.end());
  }
  return true;
}

bool Connection::flush() {
  const iovec left{out.data(), out.size()};
  const ssize_t done = channel->send_some(&left, 1, false);
  if (done < 0) return errno == EAGAIN;
  out.erase(out.begin(), out.begin() + done);
  return true;
}

void Connection::want(int poll) {
  const std::uint32_t wanted =
      (busy || !out.empty() ? 0U : EPOLLIN) | (out.empty() ? 0U : EPOLLOUT);
  if (gone || channel == nullptr || std::exchange(events, wanted) == wanted) return;
  watch(poll, EPOLL_CTL_MOD, channel->descriptor(), number, wanted);
}

}  // namespace nvio
