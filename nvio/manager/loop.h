// A manager's one thread that waits for everybody at once: those who ask, the links to other
// managers, and its own threads. It is spread over loop.cc (who comes and goes), requests.cc and
// passing.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../nodes/wire.h"
#include "connection.h"
#include "door.h"
#include "links.h"
#include "manager.h"
#include "service.h"
#include "workers.h"

namespace nvio {

constexpr std::size_t kMostRoom = sizeof(Request) + kMostPayload;  // of a message

class Loop : public Links::User {
 public:
  Loop(Session& session, std::vector<std::unique_ptr<Listener>> listeners,
       const ManagerOptions& options);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() override;

  int run();

 private:
  // What an event is about: a listener's or connection's number, kept in its 64 bits.
  static constexpr std::uint64_t kWorkers = ~0ULL;
  static constexpr std::uint64_t kFirstConnection = 1 << 16;
  static constexpr std::uint64_t kFirstLink = 1ULL << 62;

  // Of the links.
  void on_answer(std::uint64_t asker, std::span<const std::byte> reply) override;
  void on_lost(std::uint64_t asker, const std::string& why) override;
  std::uint64_t on_lane(const ServedLane& lane) override;
  bool on_request(std::uint64_t served, std::span<const std::byte> message) override;
  void on_lane_end(std::uint64_t served) override;

  int patience() const;
  void accept_from(std::uint64_t listener);
  void look_at_peers();
  void on_event(Connection& connection, std::uint32_t events);
  void receive(Connection& connection);
  // Takes whole messages off the connection's buffer.
  void take(Connection& connection);
  std::size_t take_hello(Connection& connection);
  std::size_t take_proof(Connection& connection);
  std::size_t take_request(Connection& connection);
  void take_manager(Connection& connection);
  void serve(Connection& connection, const Request& request, std::span<const std::byte> message);
  void pass_on(Connection& connection, const Request& request, std::span<const std::byte> message);
  void tell_lost(Connection& connection, const std::string& why);
  void serve_later(Connection& connection, const Request& request,
                   std::span<const std::byte> payload);
  void finished(std::uint64_t number, Operation operation, std::uint32_t index, ServedFile* file,
                const Reply& reply, const std::vector<std::byte>& answer);
  void send(Connection& connection, std::span<const std::byte> head,
            std::span<const std::byte> body = {});
  void flush(Connection& connection);
  void drop(Connection& connection);
  std::span<const std::uint8_t> secret_for(const Connection& connection) const;
  // Descriptors that peers have.
  std::size_t descriptors() const { return connections_.size() - lanes_ + links_.count(); }

  Service service_;
  ManagerOptions options_;
  std::uint32_t nodes_;
  Door door_;
  std::vector<std::byte> scratch_;
  Workers workers_;
  int poll_ = -1;
  std::chrono::steady_clock::time_point looked_;
  std::uint64_t next_ = kFirstConnection;
  std::map<std::uint64_t, Connection> connections_;
  std::vector<std::uint64_t> dropped_;
  std::size_t ready_ = 0;  // processes, here and of other nodes, that are served
  std::size_t lanes_ = 0;  // of the connections
  bool had_peers_ = false;
  std::size_t working_ = 0;  // tasks that the threads have
  Links links_;
};

}  // namespace nvio
