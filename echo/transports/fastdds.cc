// eProsima Fast DDS through its C++ API, with the type that fastddsgen made of idl/Echo.idl.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <fastdds/dds/core/condition/WaitSet.hpp>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/Topic.hpp>
#include <vector>

#include "clock.h"
#include "dds.h"
#include "fastdds_api.h"
#include "qos.h"
#include "socket.h"
#include "transport.h"

namespace tare::echo {
namespace {

namespace dds = fast::dds;
namespace rtps = fast::rtps;
using fast::Duration_t;
using fast::IPLocator;
using fast::Locator_t;
using fast::succeeded;
using DdsMessage = tare::idl::Message;

std::string numeric_host(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

// Fast DDS selects interfaces by IPv4 address only. It passes over one that does not run, and then
// is ready without any.
std::string address_of_interface(const std::string& interface) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) throw_errno("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    std::string address = numeric_host(one->ifa_addr, sizeof(sockaddr_in));
    if (interface != one->ifa_name && interface != address) continue;
    if ((one->ifa_flags & IFF_RUNNING) != 0) return address;
    throw std::runtime_error("the interface " + std::string(one->ifa_name) +
                             " does not run, so that Fast DDS would not use it; it must be up, with"
                             " its other end connected (`ip -4 address` must not say DOWN)");
  }
  throw std::runtime_error("no interface here is named or numbered \"" + interface +
                           "\" with an IPv4 address; `ip -4 address` lists them");
}

dds::DomainParticipantQos participant_qos(const Endpoint& endpoint) {
  dds::DomainParticipantQos qos;
  // UDP alone: no shared memory.
  qos.transport().use_builtin_transports = false;
  auto udp = std::make_shared<rtps::UDPv4TransportDescriptor>();
  if (!endpoint.interface.empty()) {
    udp->interfaceWhiteList.push_back(address_of_interface(endpoint.interface));
  }
  qos.transport().user_transports.push_back(udp);

  auto& discovery = qos.wire_protocol().builtin;
  for (const std::string& peer : endpoint.peers) {
    const SocketAddress address = resolve(peer, 0);
    Locator_t locator;
    IPLocator::setIPv4(locator, numeric_host(address.get(), address.length));
    locator.port = 0;  // the well-known ports of the domain's first participants
    discovery.initialPeersList.push_back(locator);
  }
  if (endpoint.no_multicast) {
    // A unicast locator of our own replaces the default ones, multicast among them.
    discovery.metatrafficUnicastLocatorList.push_back(Locator_t());
  } else if (!endpoint.peers.empty()) {
    Locator_t group;  // naming peers replaces the multicast group, so it is named again
    IPLocator::setIPv4(group, "239.255.0.1");
    group.port = 0;
    discovery.initialPeersList.push_back(group);
  }
  return qos;
}

// The policies that readers and writers share; see qos.h.
template <typename Qos>
void set_qos(Qos& qos) {
  qos.reliability().kind = dds::RELIABLE_RELIABILITY_QOS;
  qos.reliability().max_blocking_time =
      Duration_t(static_cast<long double>(kMaxBlockingNs) * 1e-9L);
  qos.durability().kind = dds::VOLATILE_DURABILITY_QOS;
  qos.history().kind = dds::KEEP_LAST_HISTORY_QOS;
  qos.history().depth = kHistoryDepth;
  qos.resource_limits().max_samples = 0;  // unlimited
  qos.resource_limits().max_instances = 0;
  qos.resource_limits().max_samples_per_instance = 0;
  qos.latency_budget().duration = Duration_t(0, 0);
  qos.destination_order().kind = dds::BY_RECEPTION_TIMESTAMP_DESTINATIONORDER_QOS;
  qos.ownership().kind = dds::SHARED_OWNERSHIP_QOS;
  qos.endpoint().history_memory_policy = fast::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
  qos.data_sharing().off();
}

template <typename T>
T* checked(T* entity, const char* what) {
  if (entity == nullptr) throw std::runtime_error("Fast DDS cannot " + std::string(what));
  return entity;
}

// A participant with a writer of one topic and a reader of the other.
class Node {
 public:
  Node(const Endpoint& endpoint, const char* write_topic, const char* read_topic) {
    static const bool configured = [] {
      fast::turn_off_intraprocess_delivery();
      return true;
    }();
    static_cast<void>(configured);
    participant_ = checked(dds::DomainParticipantFactory::get_instance()->create_participant(
                               endpoint.domain, participant_qos(endpoint)),
                           "create a participant (is the network up?)");
    dds::TypeSupport type(new tare::idl::MessagePubSubType());
    type.register_type(participant_, kTypeName);
    dds::Topic* written =
        checked(participant_->create_topic(write_topic, kTypeName, dds::TOPIC_QOS_DEFAULT),
                "create a topic");
    dds::Topic* read =
        checked(participant_->create_topic(read_topic, kTypeName, dds::TOPIC_QOS_DEFAULT),
                "create a topic");

    dds::Publisher* publisher =
        checked(participant_->create_publisher(dds::PUBLISHER_QOS_DEFAULT), "create a publisher");
    dds::DataWriterQos writer_qos;
    set_qos(writer_qos);
    writer_qos.publish_mode().kind = dds::SYNCHRONOUS_PUBLISH_MODE;
    writer_qos.writer_data_lifecycle().autodispose_unregistered_instances = false;
    writer_ = checked(publisher->create_datawriter(written, writer_qos), "create a writer");

    dds::Subscriber* subscriber = checked(
        participant_->create_subscriber(dds::SUBSCRIBER_QOS_DEFAULT), "create a subscriber");
    dds::DataReaderQos reader_qos;
    set_qos(reader_qos);
    reader_ = checked(subscriber->create_datareader(read, reader_qos), "create a reader");
  }

  ~Node() {
    if (participant_ == nullptr) return;
    participant_->delete_contained_entities();
    dds::DomainParticipantFactory::get_instance()->delete_participant(participant_);
  }

  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// From now on `listener` is called on Fast DDS's receive thread when data comes.
  void listen(dds::DataReaderListener* listener) {
    reader_->set_listener(listener, dds::StatusMask::data_available());
  }

  void stop_listening() { reader_->set_listener(nullptr, dds::StatusMask::none()); }

  void use_waitset() {
    dds::StatusCondition& condition = reader_->get_statuscondition();
    condition.set_enabled_statuses(dds::StatusMask::data_available());
    waitset_.attach_condition(condition);
    active_.reserve(1);
  }

  bool wait_for_data(int64_t timeout_ns) {
    const int64_t timeout = timeout_ns < 0 ? 0 : timeout_ns;
    const Duration_t duration(static_cast<int32_t>(timeout / 1'000'000'000),
                              static_cast<uint32_t>(timeout % 1'000'000'000));
    return succeeded(waitset_.wait(active_, duration));
  }

  bool write(DdsMessage& message) { return succeeded(writer_->write(&message)); }

  /// Calls `use` with each message that is there. The message's buffer is kept and filled again.
  template <typename Use>
  void take(Use&& use) {
    while (succeeded(reader_->take_next_sample(&message_, &info_))) {
      if (info_.valid_data) use(message_);
    }
  }

 private:
  dds::DomainParticipant* participant_ = nullptr;
  dds::DataWriter* writer_ = nullptr;
  dds::DataReader* reader_ = nullptr;
  dds::WaitSet waitset_;
  dds::ConditionSeq active_;
  DdsMessage message_;
  dds::SampleInfo info_;
};

class FastServer final : public DdsServer<Node>, private dds::DataReaderListener {
 public:
  explicit FastServer(const Endpoint& endpoint) : DdsServer(endpoint) {}

 private:
  void on_data_available(dds::DataReader* /*reader*/) override { answer(); }

  void listen() override { node_.listen(this); }

  void answer() override {
    node_.take([this](DdsMessage& request) {
      ++counters.requests;
      spin_for(work_ns_);
      if (node_.write(request)) ++counters.replies;
    });
  }
};

class FastClient final : public DdsClient<Node>, private dds::DataReaderListener {
 public:
  explicit FastClient(const Endpoint& endpoint) : DdsClient(endpoint) {
    request_.payload().resize(endpoint.payload_bytes);
  }

  ~FastClient() override { node_.stop_listening(); }

  std::span<std::byte> payload() override {
    return std::as_writable_bytes(std::span(request_.payload()));
  }

  bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) override {
    request_.requester(requester);
    request_.sequence_number(sequence);
    request_.checksum(checksum);
    return node_.write(request_);
  }

 private:
  void on_data_available(dds::DataReader* /*reader*/) override { on_data(); }

  void listen() override { node_.listen(this); }

  bool deliver() override {
    bool wake = false;
    node_.take([&](DdsMessage& reply) {
      const int64_t received_ns = now_ns();
      wake |= sink_->on_reply({.requester = reply.requester(),
                               .sequence = reply.sequence_number(),
                               .checksum = reply.checksum(),
                               .payload = std::as_bytes(std::span(reply.payload()))},
                              received_ns);
    });
    return wake;
  }

  DdsMessage request_;
};

}  // namespace

const Traits& transport_traits() {
  static constexpr Traits traits = {.name = "fastdds",
                                    .summary = "eProsima Fast DDS, C++ API",
                                    .has_domain = true,
                                    .needs_peer = false,
                                    .max_payload = 1 << 26};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& /*endpoint*/) {
  return {{"qos", describe_qos()},
          {"stack", {{"name", "Fast DDS"}, {"version", ECHO_FASTDDS_VERSION}}},
          {"configuration",
           {{"transports", {"UDPv4"}},
            {"shared_memory", false},
            {"data_sharing", false},
            {"intraprocess_delivery", false},
            {"history_memory", "preallocated-with-realloc"}}}};
}

std::unique_ptr<Server> make_server(const Endpoint& endpoint) {
  return std::make_unique<FastServer>(endpoint);
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t /*requester*/) {
  return std::make_unique<FastClient>(endpoint);
}

}  // namespace tare::echo
