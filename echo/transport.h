// What a transport must provide. One file in transports/ implements the four functions at the
// end; main.cc is linked with one such file into one executable.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "message.h"

namespace tare::echo {

/// How a DDS reader learns of data: a callback on the middleware's own thread, or a thread of
/// ours that blocks in a wait set.
enum class Reception { kListener, kWaitset };

/// What a transport is and which options mean something to it.
struct Traits {
  std::string_view name;
  std::string_view summary;
  bool has_server = true;    // false: the transport answers itself
  bool has_work = true;      // false: who answers cannot be made to work
  bool has_port = false;     // --port
  bool has_bind = false;     // --bind
  bool has_domain = false;   // --domain, --interface, --no-multicast, --reception
  bool needs_peer = true;    // --peer is required of `ask`
  uint32_t max_payload = 0;  // bytes
};

/// Where an endpoint stands and whom it talks to. Empty strings: the system chooses.
struct Endpoint {
  std::string bind;
  std::vector<std::string> peers;
  std::string interface;
  uint16_t port = 0;
  uint32_t domain = 0;
  Reception reception = Reception::kListener;
  bool no_multicast = false;
  uint32_t payload_bytes = 0;             // ask only
  int64_t work_ns = 0;                    // serve only; echo-null: also ask
  int64_t receive_slice_ns = 50'000'000;  // longest that a blocking call may go unobserved
};

/// What a running server has counted. Written by the server's threads, read by any.
struct ServerCounters {
  std::atomic<uint64_t> requests = 0;  // all that came, probes included
  std::atomic<uint64_t> replies = 0;
  std::atomic<uint64_t> bad = 0;  // could not be read as a request
};

/// The answering side.
class Server {
 public:
  virtual ~Server() = default;

  /// Answers until `stop` is set, which it notices within a receive slice. Requests that come
  /// between construction and this call wait in the socket.
  virtual void serve(const std::atomic<bool>& stop) = 0;

  ServerCounters counters;
};

/// Takes what a client receives. May be called on the thread inside Client::wait or, with a
/// listener, on a thread of the middleware.
class ReplySink {
 public:
  virtual ~ReplySink() = default;

  /// `received_ns` was stamped as soon as the reply was in the program's hands. True: the
  /// thread in Client::wait has something to do and should be woken.
  virtual bool on_reply(const Message& reply, int64_t received_ns) = 0;

  /// Something came that is no message.
  virtual void on_malformed() = 0;
};

/// The connection is gone for good; no later request can be answered.
class ConnectionLost : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The asking side: one requester with its own socket or entities. Send may be called from
/// inside OnReply; calls of Send never overlap.
class Client {
 public:
  virtual ~Client() = default;

  /// Where replies go from now on. Called once, before anything else.
  virtual void attach(ReplySink& sink) = 0;

  /// The place for the next request's payload, payload_bytes long.
  virtual std::span<std::byte> payload() = 0;

  /// Sends the payload with these numbers. False: the system refused it now (no buffer, nobody
  /// there yet). Throws ConnectionLost.
  virtual bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) = 0;

  /// Returns after at least one reply (true), a wake-up (true), or `timeout_ns` (false). Zero
  /// or less only looks. A timeout equal to the endpoint's receive slice is the cheapest way to
  /// block. Throws ConnectionLost.
  virtual bool wait(int64_t timeout_ns) = 0;
};

/// Lets a thread wait for what another does; for clients whose middleware calls back.
class Gate {
 public:
  void open() { semaphore_.release(); }
  bool wait(int64_t timeout_ns) {
    if (timeout_ns <= 0) return semaphore_.try_acquire();
    return semaphore_.try_acquire_for(std::chrono::nanoseconds(timeout_ns));
  }

 private:
  std::counting_semaphore<> semaphore_{0};
};

// ---- One file in transports/ defines these. All throw std::runtime_error with a sentence. ----

const Traits& transport_traits();

/// The explicit settings and quality of service, printed with every result.
nlohmann::json describe_transport(const Endpoint& endpoint);

std::unique_ptr<Server> make_server(const Endpoint& endpoint);

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t requester);

}  // namespace tare::echo
