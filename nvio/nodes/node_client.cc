#include "node_client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "reach.h"

namespace nvio {

bool NodeClient::connect(std::string& why) {
  if (through_ != nullptr) return through_->connect(why);
  const std::lock_guard guard(mutex_);
  return connect_locked(why);
}

// A manager that ends just now may still take a connection: its end is no failure yet.
bool NodeClient::connect_locked(std::string& why) {
  using Clock = std::chrono::steady_clock;
  if (broken_) {
    why = "the manager of node " + std::to_string(node_) + " is gone";
    return false;
  }
  if (channel_ != nullptr) return true;
  const Clock::time_point give_up = Clock::now() + kManagerPatience;
  std::chrono::milliseconds pause{1};
  while (Clock::now() < give_up) {
    Reached reached = reach_manager(settings_, node_, kProcess);
    channel_ = std::move(reached.channel);
    if (channel_ != nullptr) return true;
    why = reached.why;
    if (reached.is_refused) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
  why = "cannot reach the manager of node " + std::to_string(node_) + ": " + why;
  fail(why);
  return false;
}

int NodeClient::call(Request request, std::span<const std::byte> payload, Reply& reply,
                     std::span<std::byte> room) {
  const std::lock_guard guard(mutex_);
  request.node = node_;
  std::string why;
  if (through_ == nullptr) {
    if (!connect_locked(why)) return EIO;
    int error = exchange(request, payload, reply, room);
    if (error == 0 && reply.magic != kReplyMagic) error = EPROTO;
    if (error == 0) return reply.error;
    abandon();
    fail("lost the manager of node " + std::to_string(node_) + ": " + std::strerror(error));
    return EIO;
  }
  if (broken_) return EIO;
  const int error = through_->ask(request, payload, reply, room, why);
  if (error == 0) return reply.error;
  fail(why);
  return EIO;
}

int NodeClient::ask(const Request& request, std::span<const std::byte> payload, Reply& reply,
                    std::span<std::byte> room, std::string& why) {
  const std::lock_guard guard(mutex_);
  if (!connect_locked(why)) return EIO;
  std::array<std::byte, kMostWhy> words;
  // What cannot be done is told in words, for which there may be no room where they are asked for.
  const bool roomy = room.size() >= words.size();
  const std::span<std::byte> to = roomy ? room : std::span<std::byte>(words);
  int error = exchange(request, payload, reply, to);
  if (error == 0 && reply.magic == kLostMagic) {
    why.assign(reinterpret_cast<const char*>(to.data()), reply.payload);
    return EIO;
  }
  if (error == 0 && reply.payload > room.size()) error = EPROTO;
  if (error != 0) {
    abandon();
    why = "lost the manager of node " + std::to_string(node_) +
          ", which passes on what is asked of node " + std::to_string(request.node) + ": " +
          std::strerror(error);
    return error;
  }
  if (!roomy && !room.empty()) std::memcpy(room.data(), to.data(), reply.payload);
  return 0;
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
  const bool is_known = reply.magic == kReplyMagic || reply.magic == kLostMagic;
  if (!is_known || reply.payload > room.size() || got - sizeof reply > reply.payload) {
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
  abandon();
  if (!settings_.quiet) {
    std::fprintf(stderr,
                 "nvio: %s; I/O on that node's part of the job's files fails from here on. What "
                 "was synced is in the nodes' stores: nvio recover\n",
                 why.c_str());
  }
}

}  // namespace nvio
