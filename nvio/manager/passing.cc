// What is passed on: a process of this machine asks something of another node, and others of this
// one, by the links to their managers.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "loop.h"

namespace nvio {

// A manager says nothing more before it has its answer; from then on the channel is of the links.
void Loop::take_manager(Connection& connection) {
  const std::uint32_t node = connection.greeting.caller();
  const bool is_taken = connection.filled == sizeof(Digest) && links_.takes(node);
  Reply reply{};
  reply.magic = kReplyMagic;
  reply.error = is_taken ? 0 : EALREADY;
  send(connection, bytes_of(reply));
  drop(connection);
  if (is_taken && connection.out.empty()) links_.adopt(node, std::move(connection.channel));
}

// Only for processes of this machine: no request takes a third hop.
void Loop::pass_on(Connection& connection, const Request& request,
                   std::span<const std::byte> message) {
  if (!connection.is_local || request.node >= nodes_) {
    drop(connection);
    return;
  }
  connection.busy = connection.is_relayed = true;
  connection.want(poll_);
  if (const auto why = links_.ask(connection.number, request.node, message)) {
    connection.busy = connection.is_relayed = false;
    tell_lost(connection, *why);
  }
}

void Loop::tell_lost(Connection& connection, const std::string& why) {
  const std::span words = std::as_bytes(std::span(why)).first(std::min(why.size(), kMostWhy));
  Reply reply{};
  reply.magic = kLostMagic;
  reply.error = EIO;
  reply.payload = static_cast<std::uint32_t>(words.size());
  send(connection, bytes_of(reply), words);
  connection.want(poll_);
}

void Loop::on_answer(std::uint64_t asker, std::span<const std::byte> reply) {
  Connection& connection = connections_.at(asker);
  connection.busy = connection.is_relayed = false;
  if (connection.gone) return;
  send(connection, reply);
  connection.want(poll_);
  take(connection);
}

void Loop::on_lost(std::uint64_t asker, const std::string& why) {
  Connection& connection = connections_.at(asker);
  connection.busy = connection.is_relayed = false;
  if (connection.gone) return;
  tell_lost(connection, why);
  take(connection);
}

std::uint64_t Loop::on_lane(const ServedLane& lane) {
  const std::uint64_t number = next_++;
  Connection& connection = connections_[number];
  connection.number = number;
  connection.lane = lane;
  connection.stage = Stage::ready;
  ++lanes_;
  ++ready_;
  had_peers_ = true;
  return number;
}

bool Loop::on_request(std::uint64_t served, std::span<const std::byte> message) {
  Connection& connection = connections_.at(served);
  if (connection.busy || links_.is_sending(*connection.lane)) return false;
  std::optional<Request> request;
  if (message.size() >= sizeof(Request)) {
    request = parse_request(message.first<sizeof(Request)>());
  }
  if (request && request->node == options_.node &&
      message.size() == sizeof(Request) + request->payload) {
    serve(connection, *request, message);
  } else {
    drop(connection);
  }
  return true;
}

void Loop::on_lane_end(std::uint64_t served) { drop(connections_.at(served)); }

}  // namespace nvio
