// This process's connection to the manager of one node: a request, its answer, the next request.
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
  // `settings` must outlive it.
  NodeClient(const Settings& settings, std::uint32_t node) : settings_(settings), node_(node) {}

  // Connects if that was not done yet, starting the manager where this process may. False with a
  // sentence; after a connection broke, for good: what the manager knew of our files is gone.
  bool connect(std::string& why);

  // Sends the request with its payload and waits for the answer, whose payload goes to `room`; but
  // no longer than the silence (settings) after the manager was heard last. Returns 0, the
  // manager's errno value, or EIO when the manager cannot be reached. Threads may call at the same
  // time and take turns.
  int call(Request request, std::span<const std::byte> payload, Reply& reply,
           std::span<std::byte> room = {});

  bool is_broken() const { return broken_; }
  // In a forked child: leaves the connection to its parent.
  void abandon();

 private:
  bool connect_locked(std::string& why);
  // `refused`: there is no point in trying again.
  std::unique_ptr<Channel> try_connect(std::string& why, bool& refused) const;
  bool prove(Channel& channel, std::string& why, bool& refused) const;
  int exchange(Request request, std::span<const std::byte> payload, Reply& reply,
               std::span<std::byte> room);
  void fail(const std::string& why);

  const Settings& settings_;
  std::uint32_t node_;
  std::mutex mutex_;
  std::unique_ptr<Channel> channel_;
  bool broken_ = false;
};

}  // namespace nvio
