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
/// Node(endpoint, writes, reads), UseWaitset(), WaitForData(timeout_ns), StopListening().
template <typename Node>
class DdsServer : public Server {
 public:
  void Serve(const std::atomic<bool>& stop) final {
    if (reception_ == Reception::kWaitset) {
      while (!stop.load(std::memory_order_relaxed)) {
        if (node_.WaitForData(slice_ns_)) Answer();
      }
      return;
    }
    Listen();
    while (!stop) std::this_thread::sleep_for(std::chrono::nanoseconds(slice_ns_));
    node_.StopListening();
  }

 protected:
  explicit DdsServer(const Endpoint& endpoint)
      : node_(endpoint, kReplyTopic, kRequestTopic),
        work_ns_(endpoint.work_ns),
        reception_(endpoint.reception),
        slice_ns_(endpoint.receive_slice_ns) {
    if (reception_ == Reception::kWaitset) node_.UseWaitset();
  }

  /// Has the stack call Answer from now on, on a thread of its own.
  virtual void Listen() = 0;

  /// Answers each request that is there.
  virtual void Answer() = 0;

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
  void Attach(ReplySink& sink) final {
    sink_ = &sink;
    if (reception_ == Reception::kListener) Listen();
  }

  bool Wait(int64_t timeout_ns) final {
    if (reception_ == Reception::kListener) return gate_.Wait(timeout_ns);
    if (!node_.WaitForData(timeout_ns)) return false;
    Deliver();
    return true;
  }

 protected:
  explicit DdsClient(const Endpoint& endpoint)
      : node_(endpoint, kRequestTopic, kReplyTopic), reception_(endpoint.reception) {
    if (reception_ == Reception::kWaitset) node_.UseWaitset();
  }

  /// What a listener does when data comes.
  void OnData() {
    if (Deliver()) gate_.Open();
  }

  /// Has the stack call OnData from now on, on a thread of its own.
  virtual void Listen() = 0;

  /// Hands each reply that is there to the sink; true if one of them asks for the thread in Wait.
  virtual bool Deliver() = 0;

  Node node_;
  ReplySink* sink_ = nullptr;

 private:
  const Reception reception_;
  Gate gate_;
};

}  // namespace tare::echo
