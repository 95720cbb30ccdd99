// This process's way to the manager of one node: a request, its answer, the next request. Either
// over a connection to that manager, or over the one that this process has to its own node's, which
// passes on what is asked of others.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "../transport/transport.h"
#include "wire.h"

namespace nvio {

class NodeClient {
 public:
  // `settings` and `through` must outlive it. `through`: who passes it on; null: nobody.
  NodeClient(const Settings& settings, std::uint32_t node, NodeClient* through = nullptr)
      : settings_(settings), node_(node), through_(through) {}

  // Connects if that was not done yet, starting the manager where this process may. False with a
  // sentence; after a connection broke, for good: what the manager knew of our files is gone. Where
  // another passes it on, only the way to that one is sure.
  bool connect(std::string& why);

  // Sends the request with its payload and waits for the answer, whose payload goes to `room`; but
  // no longer than the silence (settings) after the manager was heard last. Returns 0, the
  // manager's errno value, or EIO when the manager cannot be reached. Threads may call at the same
  // time and take turns.
  int call(Request request, std::span<const std::byte> payload, Reply& reply,
           std::span<std::byte> room = {});

  bool is_broken() const { return broken_; }
  // Leaves the connection for good: to the parent, in a forked child; or one that is lost, before
  // memory is taken for words of it, which may not be had: nobody must go on with half a reply.
  void abandon();

 private:
  bool connect_locked(std::string& why);
  // Any node's; 0, or an errno value and perhaps a sentence.
  int ask(const Request& request, std::span<const std::byte> payload, Reply& reply,
          std::span<std::byte> room, std::string& why);
  int exchange(Request request, std::span<const std::byte> payload, Reply& reply,
               std::span<std::byte> room);
  void fail(const std::string& why);

  const Settings& settings_;
  std::uint32_t node_;
  NodeClient* through_;
  std::mutex mutex_;
  std::unique_ptr<Channel> channel_;
  bool broken_ = false;
};

}  // namespace nvio
