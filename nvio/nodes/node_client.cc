#include "node_client.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "../transport/wiped.h"
#include "rendezvous.h"
#include "start_manager.h"

namespace nvio {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{60};  // for a manager to come up, on a busy machine

}  // namespace

bool NodeClient::connect(std::string& why) {
  const std::lock_guard guard(mutex_);
  return connect_locked(why);
}

// A manager that ends just now may still take a connection: its end is no failure yet.
bool NodeClient::connect_locked(std::string& why) {
  if (broken_) {
    why = "the manager of node " + std::to_string(node_) + " is gone";
    return false;
  }
  if (channel_ != nullptr) return true;
  // On other machines a manager is started by the processes there.
  const bool may_start = settings_.rendezvous.empty() || node_ == settings_.node;
  const Clock::time_point give_up = Clock::now() + kPatience;
  std::chrono::milliseconds pause{1};
  bool refused = false;
  while (Clock::now() < give_up) {
    channel_ = try_connect(why, refused);
    if (channel_ != nullptr) return true;
    if (refused) break;
    if (may_start && start_manager(settings_, node_, why) == Started::failed) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
  why = "cannot reach the manager of node " + std::to_string(node_) + ": " + why;
  fail(why);
  return false;
}

std::unique_ptr<Channel> NodeClient::try_connect(std::string& why, bool& refused) const {
  const bool same_machine = settings_.rendezvous.empty() || node_ == settings_.node;
  const std::string address =
      same_machine ? local_address(settings_, node_) : published_address(settings_, node_);
  if (address.empty()) {
    why = "it has not told its address yet";
    return nullptr;
  }
  std::unique_ptr<Channel> channel =
      connect_to(address, {std::chrono::seconds(settings_.silence)}, why);
  if (channel == nullptr) return nullptr;
  if (same_machine && !channel->is_same_user()) {
    why = address + " belongs to another user";
    return nullptr;
  }
  if (!prove(*channel, why, refused)) return nullptr;
  return channel;
}

bool NodeClient::prove(Channel& channel, std::string& why, bool& refused) const {
  std::vector<std::uint8_t> secret;
  const Wiped no_secret(secret);
  if (!job_secret(settings_, secret, why)) return false;
  Hello hello{};
  std::memcpy(hello.magic, kWireMagic, sizeof kWireMagic);
  hello.version = kWireVersion;
  hello.node = node_;
  if (getrandom(hello.nonce.data(), hello.nonce.size(), 0) !=
      static_cast<ssize_t>(hello.nonce.size())) {
    why = "no random numbers";
    return false;
  }
  const iovec first{&hello, sizeof hello};
  Welcome welcome{};
  // Who refuses may have closed before this was sent.
  send_all(channel, &first, 1);
  if (const int error = receive_all(channel, &welcome, sizeof welcome); error != 0) {
    why = error == ETIMEDOUT ? "it does not answer" : "it went away";
    return false;
  }
  if (const auto refusal = parse_refusal(welcome, node_)) {
    why = "it serves " + std::to_string(refusal->peers) + " processes, and its limit of " +
          std::to_string(refusal->limit) +
          " open files leaves no room for another; raise the hard limit on its node (ulimit -Hn, "
          "DefaultLimitNOFILE=, slurmd's LimitNOFILE=)";
    refused = true;
    return false;
  }
  if (!is_welcome(welcome, node_) ||
      !equal_digests(welcome.proof, manager_proof(secret, hello.nonce, welcome.nonce))) {
    why = "what answers there is no manager of this job";
    return false;
  }
  Digest shown = client_proof(secret, hello.nonce, welcome.nonce);
  const iovec second{shown.data(), shown.size()};
  if (send_all(channel, &second, 1) == 0) return true;
  why = "it went away";
  return false;
}

int NodeClient::call(Request request, std::span<const std::byte> payload, Reply& reply,
                     std::span<std::byte> room) {
  const std::lock_guard guard(mutex_);
  std::string why;
  if (!connect_locked(why)) return EIO;
  const int error = exchange(request, payload, reply, room);
  if (error == 0) return reply.error;
  fail("lost the manager of node " + std::to_string(node_) + ": " + std::strerror(error));
  return EIO;
}

int NodeClient::exchange(Request request, std::span<const std::byte> payload, Reply& reply,
                         std::span<std::byte> room) {
  request.magic = kRequestMagic;
  request.payload = static_cast<std::uint32_t>(payload.size());
  const std::array<iovec, 2> out{
      {{&request, sizeof request}, {const_cast<std::byte*>(payload.data()), payload.size()}}};
  if (const int error = send_all(*channel_, out.data(), payload.empty() ? 1 : 2)) return error;
  // Header and payload in one call, as they come; then what is still missing.
  const std::array<iovec, 2> in{{{&reply, sizeof reply}, {room.data(), room.size()}}};
  std::size_t got = 0;
  for (;;) {
    if (got == 0) {
      const ssize_t first = channel_->receive_some(in.data(), room.empty() ? 1 : 2, true);
      if (first <= 0) return first == 0 ? ECONNRESET : errno;
      got = static_cast<std::size_t>(first);
    }
    if (got < sizeof reply) {
      if (const int error =
              receive_all(*channel_, reinterpret_cast<char*>(&reply) + got, sizeof reply - got)) {
        return error;
      }
      got = sizeof reply;
    }
    if (reply.magic != kWorkingMagic) break;
    // What came behind it begins the answer.
    const std::size_t more = got - sizeof reply;
    const std::size_t head = std::min(more, sizeof reply);
    std::memcpy(&reply, room.data(), head);
    std::memmove(room.data(), room.data() + head, more - head);
    got = more;
  }
  if (reply.magic != kReplyMagic || reply.payload > room.size() ||
      got - sizeof reply > reply.payload) {
    return EPROTO;
  }
  const std::size_t have = got - sizeof reply;
  return receive_all(*channel_, room.data() + have, reply.payload - have);
}

void NodeClient::abandon() {
  broken_ = true;
  channel_.reset();
}

void NodeClient::fail(const std::string& why) {
  broken_ = true;
  channel_.reset();
  if (!settings_.quiet) {
    std::fprintf(stderr,
                 "nvio: %s; I/O on that node's part of the job's files fails from here on. What "
                 "was synced is in the nodes' stores: nvio recover\n",
                 why.c_str());
  }
}

}  // namespace nvio
