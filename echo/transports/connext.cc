// RTI Connext DDS through its modern C++ API, with the type that rtiddsgen made of idl/Echo.idl.
// Compiled only where CMake is pointed to an installation (RTI_CONNEXT_DIR).
#include <dds/dds.hpp>
#include <functional>
#include <map>
#include <rti/config/Version.hpp>
#include <rti/core/policy/CorePolicy.hpp>
#include <vector>

#include "Echo.hpp"
#include "clock.h"
#include "dds.h"
#include "qos.h"
#include "transport.h"

namespace tare::echo {
namespace {

namespace policy = dds::core::policy;
using DdsMessage = tare::idl::Message;
using dds::core::Duration;

// UDP alone, on one interface if one is named, and the peers instead of the default ones.
dds::domain::qos::DomainParticipantQos participant_qos(const Endpoint& endpoint) {
  dds::domain::qos::DomainParticipantQos qos;
  qos << rti::core::policy::TransportBuiltin::UDPv4();
  std::map<std::string, std::string> properties;
  if (!endpoint.interface.empty()) {
    properties["dds.transport.UDPv4.builtin.parent.allow_interfaces_list"] = endpoint.interface;
  }
  qos << rti::core::policy::Property(properties.begin(), properties.end());
  auto discovery = qos.policy<rti::core::policy::Discovery>();
  std::vector<std::string> peers = endpoint.peers;
  if (endpoint.no_multicast) {
    discovery.multicast_receive_addresses(std::vector<std::string>());
  } else {
    peers.emplace_back("builtin.udpv4://239.255.0.1");
  }
  discovery.initial_peers(peers);
  qos << discovery;
  return qos;
}

template <typename Qos>
void set_qos(Qos& qos) {
  qos << policy::Reliability::Reliable(
             Duration::from_microsecs(static_cast<uint64_t>(kMaxBlockingNs / 1000)))
      << policy::Durability::Volatile() << policy::History::KeepLast(kHistoryDepth)
      << policy::LatencyBudget(Duration::zero()) << policy::DestinationOrder::ReceptionTimestamp()
      << policy::Ownership::Shared();
}

// A participant with a writer of one topic and a reader of the other.
class Node {
 public:
  Node(const Endpoint& endpoint, const char* write_topic, const char* read_topic)
      : participant_(static_cast<int32_t>(endpoint.domain), participant_qos(endpoint)),
        writer_(dds::core::null),
        reader_(dds::core::null) {
    dds::pub::qos::DataWriterQos writer_qos;
    set_qos(writer_qos);
    writer_qos << policy::WriterDataLifecycle::ManuallyDisposeUnregisteredInstances();
    // Messages of unbounded length come from the heap above this size, not from a pool.
    const std::map<std::string, std::string> writer_pool = {
        {"dds.data_writer.history.memory_manager.fast_pool.pool_buffer_max_size", "4096"}};
    writer_qos << rti::core::policy::Property(writer_pool.begin(), writer_pool.end());
    writer_ = dds::pub::DataWriter<DdsMessage>(
        dds::pub::Publisher(participant_),
        dds::topic::Topic<DdsMessage>(participant_, write_topic, kTypeName), writer_qos);
    dds::sub::qos::DataReaderQos reader_qos;
    set_qos(reader_qos);
    const std::map<std::string, std::string> reader_pool = {
        {"dds.data_reader.history.memory_manager.fast_pool.pool_buffer_max_size", "4096"}};
    reader_qos << rti::core::policy::Property(reader_pool.begin(), reader_pool.end());
    reader_ = dds::sub::DataReader<DdsMessage>(
        dds::sub::Subscriber(participant_),
        dds::topic::Topic<DdsMessage>(participant_, read_topic, kTypeName), reader_qos);
  }

  void listen(std::shared_ptr<dds::sub::NoOpDataReaderListener<DdsMessage>> listener) {
    reader_.set_listener(std::move(listener), dds::core::status::StatusMask::data_available());
  }

  void stop_listening() { reader_.set_listener(nullptr); }

  void use_waitset() {
    waitset_ += dds::sub::cond::ReadCondition(reader_, dds::sub::status::DataState::any());
  }

  bool wait_for_data(int64_t timeout_ns) {
    const int64_t timeout = timeout_ns < 0 ? 0 : timeout_ns;
    return !waitset_
                .wait(Duration(static_cast<int32_t>(timeout / 1'000'000'000),
                               static_cast<uint32_t>(timeout % 1'000'000'000)))
                .empty();
  }

  bool write(const DdsMessage& message) {
    try {
      writer_.write(message);
      return true;
    } catch (const dds::core::TimeoutError&) {
      return false;
    }
  }

  template <typename Use>
  void take(Use&& use) {
    for (const auto& sample : reader_.take()) {
      if (sample.info().valid()) use(sample.data());
    }
  }

 private:
  dds::domain::DomainParticipant participant_;
  dds::pub::DataWriter<DdsMessage> writer_;
  dds::sub::DataReader<DdsMessage> reader_;
  dds::core::cond::WaitSet waitset_;
};

// Calls a function when data comes.
class Listener final : public dds::sub::NoOpDataReaderListener<DdsMessage> {
 public:
  explicit Listener(std::function<void()> use) : use_(std::move(use)) {}
  void on_data_available(dds::sub::DataReader<DdsMessage>& /*reader*/) override { use_(); }

 private:
  const std::function<void()> use_;
};

class ConnextServer final : public DdsServer<Node> {
 public:
  explicit ConnextServer(const Endpoint& endpoint) : DdsServer(endpoint) {}

 private:
  void listen() override {
    node_.listen(std::make_shared<Listener>([this] { answer(); }));
  }

  void answer() override {
    node_.take([this](const DdsMessage& request) {
      ++counters.requests;
      spin_for(work_ns_);
      if (node_.write(request)) ++counters.replies;
    });
  }
};

class ConnextClient final : public DdsClient<Node> {
 public:
  explicit ConnextClient(const Endpoint& endpoint) : DdsClient(endpoint) {
    request_.payload().resize(endpoint.payload_bytes);
  }

  ~ConnextClient() override { node_.stop_listening(); }

  std::span<std::byte> payload() override {
    return std::as_writable_bytes(std::span(request_.payload().data(), request_.payload().size()));
  }

  bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) override {
    request_.requester(requester);
    request_.sequence_number(sequence);
    request_.checksum(checksum);
    return node_.write(request_);
  }

 private:
  void listen() override {
    node_.listen(std::make_shared<Listener>([this] { on_data(); }));
  }

  bool deliver() override {
    bool wake = false;
    node_.take([&](const DdsMessage& reply) {
      const int64_t received_ns = now_ns();
      wake |= sink_->on_reply(
          {.requester = reply.requester(),
           .sequence = reply.sequence_number(),
           .checksum = reply.checksum(),
           .payload = std::as_bytes(std::span(reply.payload().data(), reply.payload().size()))},
          received_ns);
    });
    return wake;
  }

  DdsMessage request_;
};

}  // namespace

const Traits& transport_traits() {
  static constexpr Traits traits = {.name = "connext",
                                    .summary = "RTI Connext DDS, modern C++ API",
                                    .has_domain = true,
                                    .needs_peer = false,
                                    .max_payload = 1 << 26};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& /*endpoint*/) {
  return {{"qos", describe_qos()},
          {"stack",
           {{"name", "RTI Connext DDS"}, {"version", rti::config::product_version().to_string()}}},
          {"configuration", {{"transports", {"UDPv4"}}, {"shared_memory", false}}}};
}

std::unique_ptr<Server> make_server(const Endpoint& endpoint) {
  return std::make_unique<ConnextServer>(endpoint);
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<ConnextClient>(endpoint);
}

}  // namespace tare::echo
