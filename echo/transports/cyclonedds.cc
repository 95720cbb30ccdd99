// Eclipse Cyclone DDS through its C API, with the type that idlc made of idl/Echo.idl.
#include <Echo.h>
#include <dds/dds.h>
#include <dds/version.h>

#include <array>
#include <vector>

#include "clock.h"
#include "dds.h"
#include "qos.h"
#include "transport.h"

namespace tare::echo {
namespace {

// How many samples one take may bring; more wait for the next.
constexpr uint32_t kTake = 16;

std::string domain_configuration(const Endpoint& endpoint) {
  std::string xml = "<CycloneDDS><Domain Id=\"any\"><General>";
  if (!endpoint.interface.empty()) {
    const bool address = endpoint.interface.find_first_of(".:") != std::string::npos;
    xml += "<Interfaces><NetworkInterface " + std::string(address ? "address" : "name") + "=\"" +
           endpoint.interface + "\"/></Interfaces>";
  }
  // Data always goes by unicast, as a request and its reply do.
  xml += endpoint.no_multicast ? "<AllowMulticast>false</AllowMulticast>"
                               : "<AllowMulticast>spdp</AllowMulticast>";
  xml += "</General><Discovery><ParticipantIndex>auto</ParticipantIndex>";
  if (!endpoint.peers.empty()) {
    xml += "<Peers>";
    for (const std::string& peer : endpoint.peers) xml += "<Peer Address=\"" + peer + "\"/>";
    xml += "</Peers>";
  }
  return xml + "</Discovery></Domain></CycloneDDS>";
}

dds_entity_t checked(dds_entity_t entity, const char* what) {
  if (entity < 0) {
    throw std::runtime_error("Cyclone DDS cannot " + std::string(what) + ": " +
                             dds_strretcode(entity));
  }
  return entity;
}

// A participant with a writer of one topic and a reader of the other.
class Node {
 public:
  Node(const Endpoint& endpoint, const char* write_topic, const char* read_topic) {
    static const dds_entity_t domain =
        checked(dds_create_domain(endpoint.domain, domain_configuration(endpoint).c_str()),
                "set up the domain (is --interface the name or address of one that is up?)");
    static_cast<void>(domain);
    participant_ =
        checked(dds_create_participant(endpoint.domain, nullptr, nullptr), "create a participant");
    dds_qos_t* qos = dds_create_qos();
    dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, kMaxBlockingNs);
    dds_qset_durability(qos, DDS_DURABILITY_VOLATILE);
    dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, kHistoryDepth);
    dds_qset_resource_limits(qos, DDS_LENGTH_UNLIMITED, DDS_LENGTH_UNLIMITED, DDS_LENGTH_UNLIMITED);
    dds_qset_latency_budget(qos, 0);
    dds_qset_destination_order(qos, DDS_DESTINATIONORDER_BY_RECEPTION_TIMESTAMP);
    dds_qset_ownership(qos, DDS_OWNERSHIP_SHARED);
    dds_qset_writer_data_lifecycle(qos, false);
    const auto topic = [&](const char* name) {
      return checked(dds_create_topic(participant_, &tare_idl_Message_desc, name, qos, nullptr),
                     "create a topic");
    };
    writer_ = checked(dds_create_writer(participant_, topic(write_topic), qos, nullptr),
                      "create a writer");
    reader_ = checked(dds_create_reader(participant_, topic(read_topic), qos, nullptr),
                      "create a reader");
    dds_delete_qos(qos);
    for (uint32_t i = 0; i < kTake; ++i) places_[i] = &messages_[i];
  }

  ~Node() {
    dds_delete(participant_);
    for (tare_idl_Message& message : messages_) {
      dds_sample_free(&message, &tare_idl_Message_desc, DDS_FREE_CONTENTS);
    }
  }

  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// From now on `callback(context)` is called on Cyclone's receive thread when data comes.
  void listen(void (*callback)(dds_entity_t, void*), void* context) {
    dds_listener_t* listener = dds_create_listener(context);
    dds_lset_data_available(listener, callback);
    const dds_return_t result = dds_set_listener(reader_, listener);
    dds_delete_listener(listener);
    checked(result, "set a listener");
  }

  /// No callback runs after this has returned.
  void stop_listening() { dds_set_listener(reader_, nullptr); }

  void use_waitset() {
    waitset_ = checked(dds_create_waitset(participant_), "create a wait set");
    const dds_entity_t condition =
        checked(dds_create_readcondition(reader_, DDS_ANY_STATE), "create a read condition");
    checked(dds_waitset_attach(waitset_, condition, 0), "attach to a wait set");
  }

  bool wait_for_data(int64_t timeout_ns) {
    return dds_waitset_wait(waitset_, nullptr, 0, timeout_ns < 0 ? 0 : timeout_ns) > 0;
  }

  bool write(tare_idl_Message& message) { return dds_write(writer_, &message) == DDS_RETCODE_OK; }

  /// Calls `use` with each message that is there, at most kTake; true if there may be more.
  /// The messages' buffers are kept and filled again, so nothing is allocated in steady state.
  template <typename Use>
  bool take(Use&& use) {
    std::array<dds_sample_info_t, kTake> infos;
    const int32_t count =
        dds_take(reader_, places_.data(), infos.data(), places_.size(), places_.size());
    for (int32_t i = 0; i < count; ++i) {
      if (infos[static_cast<std::size_t>(i)].valid_data) {
        use(messages_[static_cast<std::size_t>(i)]);
      }
    }
    return count == static_cast<int32_t>(kTake);
  }

 private:
  dds_entity_t participant_ = 0;
  dds_entity_t writer_ = 0;
  dds_entity_t reader_ = 0;
  dds_entity_t waitset_ = 0;
  std::array<tare_idl_Message, kTake> messages_ = {};
  std::array<void*, kTake> places_ = {};
};

class CycloneServer final : public DdsServer<Node> {
 public:
  explicit CycloneServer(const Endpoint& endpoint) : DdsServer(endpoint) {}

 private:
  void listen() override {
    node_.listen([](dds_entity_t, void* self) { static_cast<CycloneServer*>(self)->answer(); },
                 this);
  }

  void answer() override {
    const auto answer = [this](tare_idl_Message& request) {
      ++counters.requests;
      spin_for(work_ns_);
      if (node_.write(request)) ++counters.replies;
    };
    while (node_.take(answer)) {
    }
  }
};

class CycloneClient final : public DdsClient<Node> {
 public:
  explicit CycloneClient(const Endpoint& endpoint)
      : DdsClient(endpoint), payload_(endpoint.payload_bytes) {
    request_.payload = {._maximum = endpoint.payload_bytes,
                        ._length = endpoint.payload_bytes,
                        ._buffer = reinterpret_cast<uint8_t*>(payload_.data()),
                        ._release = false};
  }

  ~CycloneClient() override { node_.stop_listening(); }

  std::span<std::byte> payload() override { return payload_; }

  bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) override {
    request_.requester = requester;
    request_.sequence_number = sequence;
    request_.checksum = checksum;
    return node_.write(request_);
  }

 private:
  void listen() override {
    node_.listen([](dds_entity_t, void* self) { static_cast<CycloneClient*>(self)->on_data(); },
                 this);
  }

  bool deliver() override {
    bool wake = false;
    const auto deliver = [&](const tare_idl_Message& reply) {
      const int64_t received_ns = now_ns();
      const auto* payload = reinterpret_cast<const std::byte*>(reply.payload._buffer);
      wake |= sink_->on_reply({.requester = reply.requester,
                               .sequence = reply.sequence_number,
                               .checksum = reply.checksum,
                               .payload = {payload, reply.payload._length}},
                              received_ns);
    };
    while (node_.take(deliver)) {
    }
    return wake;
  }

  std::vector<std::byte> payload_;
  tare_idl_Message request_ = {};
};

}  // namespace

const Traits& transport_traits() {
  static constexpr Traits traits = {.name = "cyclonedds",
                                    .summary = "Eclipse Cyclone DDS, C API",
                                    .has_domain = true,
                                    .needs_peer = false,
                                    .max_payload = 1 << 26};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& endpoint) {
  return {{"qos", describe_qos()},
          {"stack", {{"name", "Cyclone DDS"}, {"version", DDS_VERSION}}},
          {"configuration", domain_configuration(endpoint)}};
}

std::unique_ptr<Server> make_server(const Endpoint& endpoint) {
  return std::make_unique<CycloneServer>(endpoint);
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<CycloneClient>(endpoint);
}

}  // namespace tare::echo
