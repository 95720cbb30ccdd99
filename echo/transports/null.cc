// Null: the client answers itself in memory. What it measures is the instrument's own cost.
#include <nlohmann/json.hpp>
#include <vector>

#include "clock.h"
#include "transport.h"

namespace tare::echo {
namespace {

class NullClient final : public Client {
 public:
  explicit NullClient(const Endpoint& endpoint)
      : work_ns_(endpoint.work_ns), payload_(endpoint.payload_bytes) {}

  void attach(ReplySink& sink) override { sink_ = &sink; }

  std::span<std::byte> payload() override { return payload_; }

  bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) override {
    request_ = {.requester = requester,
                .sequence = sequence,
                .checksum = checksum,
                .payload = std::span(payload_)};
    pending_ = true;
    return true;
  }

  bool wait(int64_t /*timeout_ns*/) override {
    if (!pending_) return false;
    pending_ = false;
    spin_for(work_ns_);
    sink_->on_reply(request_, now_ns());
    return true;
  }

 private:
  const int64_t work_ns_;
  std::vector<std::byte> payload_;
  Message request_;
  bool pending_ = false;
  ReplySink* sink_ = nullptr;
};

}  // namespace

const Traits& transport_traits() {
  static constexpr Traits traits = {
      .name = "null",
      .summary = "answers itself in memory: the instrument's own cost",
      .has_server = false,
      .needs_peer = false,
      .max_payload = 1 << 26};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& /*endpoint*/) { return nlohmann::json::object(); }

std::unique_ptr<Server> make_server(const Endpoint& /*endpoint*/) {
  throw std::runtime_error("echo-null answers itself and has no server: run only `ask`");
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<NullClient>(endpoint);
}

}  // namespace tare::echo
