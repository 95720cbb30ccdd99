#include "door.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "../nodes/wire.h"
#include "../system/real.h"
#include "watched.h"

namespace nvio {
namespace {

rlim_t most_descriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

}  // namespace

Door::Door(std::vector<std::unique_ptr<Listener>> listeners, std::uint32_t node)
    : listeners_(std::move(listeners)), node_(node) {
  keep_one();
}

Door::~Door() {
  if (kept_ >= 0) real().close(kept_);
}

void Door::keep_one() { kept_ = real().open("/dev/null", O_RDONLY | O_CLOEXEC); }

bool Door::watch(bool on) {
  is_shut_ = !on;
  bool done = true;
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    const int change = on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
    done = nvio::watch(poll_, change, listeners_[i]->descriptor(), i) && done;
  }
  return done;
}

bool Door::open(int poll) {
  poll_ = poll;
  return watch(true);
}

void Door::reopen() {
  keep_one();
  if (kept_ >= 0) watch(true);
}

std::unique_ptr<Channel> Door::accept(std::uint64_t number, std::size_t peers) {
  Listener& listener = *listeners_[number];
  std::unique_ptr<Channel> channel = listener.accept();
  if (channel != nullptr) {
    // A unix socket's peer must be this user; another's has nothing to do with the secret either.
    const bool is_unix = listener.address().starts_with("unix:");
    if (is_unix && !channel->is_same_user()) channel.reset();
    return channel;
  }
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return nullptr;
  if (kept_ >= 0) real().close(std::exchange(kept_, -1));
  channel = listener.accept();
  if (channel != nullptr) refuse(*channel, peers);
  channel.reset();
  keep_one();
  // The listener stays readable: to try again at once would be to spin.
  if (kept_ < 0) watch(false);
  return nullptr;
}

// What it sent is taken first: a connection that is closed with bytes unread is reset, and the word
// lost.
void Door::refuse(Channel& channel, std::size_t peers) const {
  std::array<std::byte, sizeof(Hello)> sent{};
  const iovec room{sent.data(), sent.size()};
  channel.receive_some(&room, 1, false);
  Refusal refusal{};
  std::memcpy(refusal.magic, kRefusalMagic, sizeof kRefusalMagic);
  refusal.version = kWireVersion;
  refusal.node = node_;
  refusal.limit = most_descriptors();
  refusal.peers = peers;
  const iovec word{&refusal, sizeof refusal};
  channel.send_some(&word, 1, false);
}

// A quarter is left to files, and a few to the rest.
std::size_t Door::most() {
  constexpr rlim_t kRest = 16;
  constexpr rlim_t kLeast = 8;
  const rlim_t all = most_descriptors();
  return std::max(kLeast, all - all / 4 - std::min(kRest, all / 4));
}

}  // namespace nvio
