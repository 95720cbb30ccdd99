// One who asks this manager: over a channel of its own, or by a lane of another manager's.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../nodes/wire.h"
#include "../transport/transport.h"
#include "links.h"
#include "service.h"

namespace nvio {

enum class Stage : std::uint8_t { hello, proof, ready };

// What is shown at the door: the nonces of a proof.
class Greeting {
 public:
  // The welcome for a hello to the manager of `node` of `nodes`; nothing for another one.
  std::optional<Welcome> answer(const Hello& hello, std::uint32_t node, std::uint32_t nodes,
                                std::span<const std::uint8_t> secret);
  bool is_proof(const Digest& shown, std::span<const std::uint8_t> secret) const;
  std::uint32_t caller() const { return caller_; }

 private:
  Nonce client_{}, own_{};
  std::uint32_t caller_ = kProcess;
};

struct Connection {
  std::uint64_t number = 0;
  std::unique_ptr<Channel> channel;  // or, where it is null,
  std::optional<ServedLane> lane;
  bool is_local = false;  // a process of this user, by the transport's own word
  Stage stage = Stage::hello;
  bool busy = false;        // a thread or another node works for it: nothing more is read meanwhile
  bool is_relayed = false;  // it is another node
  bool gone = false;
  std::vector<std::byte> in;
  std::size_t filled = 0;      // bytes of `in`
  std::vector<std::byte> out;  // what the channel did not take yet
  std::vector<ServedFile*> files;
  Greeting greeting;
  std::uint32_t events = EPOLLIN;

  // Of a channel. Sends what it takes at once and keeps the rest; false when the peer is gone.
  bool put(std::span<const std::byte> head, std::span<const std::byte> body);
  bool flush();
  // Has `poll` tell of what is to be done: reads from nobody who has an answer outstanding, so that
  // what a peer can make us keep is bounded.
  void want(int poll);
};

}  // namespace nvio
