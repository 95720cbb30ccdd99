// What a DDS transport does whatever the stack: it serves and waits by listener or by wait set.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "qos.h"
#include "transport.h"

namespace tare::echo {

/// Answers requests of a `Node`, which holds a stack's participant, writer and reader:
/// Node(endpoint, writes, reads), use_waitset(), wait_for_data(timeout_ns), stop_listening().
template <typename Node>
class DdsServer : public Server {
 public:
  void serve(const std::atomic<bool>& stop) final {
    if (reception_ == Reception::kWaitset) {
      while (!stop.load(std::memory_order_relaxed)) {
        if (node_.wait_for_data(slice_ns_)) answer();
      }
      return;
    }
    listen();
    while (!stop) std::this_thread::sleep_for(std::chrono::nanoseconds(slice_ns_));
    node_.stop_listening();
  }

 protected:
  explicit DdsServer(const Endpoint& endpoint)
      : node_(endpoint, kReplyTopic, kRequestTopic),
        work_ns_(endpoint.work_ns),
        reception_(endpoint.reception),
        slice_ns_(endpoint.receive_slice_ns) {
    if (reception_ == Reception::kWaitset) node_.use_waitset();
  }

  /// Has the stack call Answer from now on, on a thread of its own.
  virtual void listen() = 0;

  /// Answers each request that is there.
  virtual void answer() = 0;

  Node node_;
  const int64_t work_ns_;

 private:
  const Reception reception_;
  const int64_t slice_ns_;
};

/// Asks through a `Node` as above. Who derives from it stops listening in its destructor: what it
/// holds itself is gone before the node is.
template <typename Node>
class DdsClient : public Client {
 public:
  void attach(ReplySink& sink) final {
    sink_ = &sink;
    if (reception_ == Reception::kListener) listen();
  }

  bool wait(int64_t timeout_ns) final {
    if (reception_ == Reception::kListener) return gate_.wait(timeout_ns);
    if (!node_.wait_for_data(timeout_ns)) return false;
    deliver();
    return true;
  }

 protected:
  explicit DdsClient(const Endpoint& endpoint)
      : node_(endpoint, kRequestTopic, kReplyTopic), reception_(endpoint.reception) {
    if (reception_ == Reception::kWaitset) node_.use_waitset();
  }

  /// What a listener does when data comes.
  void on_data() {
    if (deliver()) gate_.open();
  }

  /// Has the stack call OnData from now on, on a thread of its own.
  virtual void listen() = 0;

  /// Hands each reply that is there to the sink; true if one of them asks for the thread in Wait.
  virtual bool deliver() = 0;

  Node node_;
  ReplySink* sink_ = nullptr;

 private:
  const Reception reception_;
  Gate gate_;
};

}  // namespace tare::echo
