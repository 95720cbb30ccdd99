// ICMP echo: answered by the peer's kernel, which wakes no process. Requests need CAP_NET_RAW,
// or a group in net.ipv4.ping_group_range.
#include <linux/filter.h>
#include <linux/icmp.h>
#include <netinet/ip.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "byte_client.h"
#include "clock.h"
#include "signals.h"
#include "socket.h"
#include "transport.h"

namespace tare::echo {
namespace {

constexpr uint32_t kIcmpHeaderBytes = 8;
constexpr uint32_t kMaxIpPacket = 65535;
constexpr uint32_t kIpHeaderBytes = 20;

struct EchoHeader {
  uint8_t type;
  uint8_t code;
  uint16_t checksum;
  uint16_t id;
  uint16_t sequence;
};
static_assert(sizeof(EchoHeader) == kIcmpHeaderBytes);

// RFC 1071, for an even number of bytes or a last one padded with zero.
uint16_t internet_checksum(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) {
    uint32_t word = 0;
    std::memcpy(&word, &bytes[i], 4);
    sum += word;
  }
  if (i < bytes.size()) {
    uint32_t word = 0;
    std::memcpy(&word, &bytes[i], bytes.size() - i);
    sum += word;
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

struct KernelCounts {
  uint64_t echo_requests = 0;
  uint64_t echo_replies = 0;
};

// This network namespace's "Icmp:" lines: one of names, one of values.
KernelCounts read_kernel_counts() {
  std::ifstream snmp("/proc/self/net/snmp");
  KernelCounts counts;
  for (std::string names; std::getline(snmp, names);) {
    std::string values;
    if (!names.starts_with("Icmp: ") || !std::getline(snmp, values)) continue;
    std::istringstream name_words(names);
    std::istringstream value_words(values);
    for (std::string name, value; name_words >> name && value_words >> value;) {
      if (name == "InEchos") counts.echo_requests = std::stoull(value);
      if (name == "OutEchoReps") counts.echo_replies = std::stoull(value);
    }
  }
  return counts;
}

// The kernel answers; this only counts what it says it answered.
class IcmpServer final : public Server {
 public:
  void serve(const std::atomic<bool>& stop) override {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const KernelCounts now = read_kernel_counts();
    counters.requests = now.echo_requests - before_.echo_requests;
    counters.replies = now.echo_replies - before_.echo_replies;
  }

 private:
  const KernelCounts before_ = read_kernel_counts();
};

class IcmpClient final : public ByteClient {
 public:
  IcmpClient(const Endpoint& endpoint, uint32_t requester)
      : ByteClient(endpoint, kIcmpHeaderBytes),
        receiver_(endpoint.receive_slice_ns),
        id_(static_cast<uint16_t>(requester ^ requester >> 16)),
        reply_(kMaxIpPacket) {
    const SocketAddress peer = resolve(endpoint.peers.front(), 0);
    if (peer.family() != AF_INET) throw std::runtime_error("echo-icmp speaks IPv4 only");
    socket_ = Fd(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
    raw_ = static_cast<bool>(socket_);
    if (raw_) {
      accept_only_own_replies();
    } else {
      socket_ = Fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP));
    }
    if (!socket_) {
      throw_errno(
          "cannot open an ICMP socket (be root, grant CAP_NET_RAW, or widen "
          "net.ipv4.ping_group_range)");
    }
    if (!endpoint.bind.empty()) bind_to(socket_.get(), endpoint.bind, 0);
    if (connect(socket_.get(), peer.get(), peer.length) != 0) {
      throw_errno("cannot reach " + endpoint.peers.front());
    }
  }

  bool wait(int64_t timeout_ns) override {
    const ssize_t length = receiver_.receive(socket_.get(), reply_, timeout_ns);
    if (length < 0) return false;
    const int64_t received_ns = now_ns();
    std::span<const std::byte> packet = std::span(reply_).first(static_cast<std::size_t>(length));
    // A raw socket shows the IP header too; its length is in its first byte, in words.
    const std::size_t skip =
        kIcmpHeaderBytes +
        (raw_ && !packet.empty() ? (std::to_integer<std::size_t>(packet[0]) & 0xf) * 4 : 0);
    deliver(packet.subspan(std::min(skip, packet.size())), received_ns);
    return true;
  }

 private:
  bool transmit(std::span<std::byte> request, uint32_t sequence) override {
    EchoHeader header = {.type = ICMP_ECHO,
                         .code = 0,
                         .checksum = 0,
                         .id = htons(id_),
                         .sequence = htons(static_cast<uint16_t>(sequence))};
    std::memcpy(request.data(), &header, sizeof header);
    header.checksum = internet_checksum(request);
    std::memcpy(request.data(), &header, sizeof header);
    return send_datagram(socket_.get(), request, g_stop);
  }

  // Every raw socket gets a copy of every ICMP packet; the kernel drops those that are not
  // echo replies with our id before they wake us.
  void accept_only_own_replies() {
    sock_filter code[] = {
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),  // X = length of the IP header
        BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ICMP_ECHOREPLY, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_IND, 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, id_, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    const sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (setsockopt(socket_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) {
      throw_errno("cannot filter the ICMP socket");
    }
  }

  Fd socket_;
  bool raw_ = false;
  Receiver receiver_;
  const uint16_t id_;
  std::vector<std::byte> reply_;
};

}  // namespace

const Traits& transport_traits() {
  static constexpr Traits traits = {
      .name = "icmp",
      .summary = "ICMP echo, answered by the peer's kernel",
      .has_work = false,
      .has_bind = true,
      .max_payload = kMaxIpPacket - kIpHeaderBytes - kIcmpHeaderBytes - kHeaderBytes};
  return traits;
}

nlohmann::json describe_transport(const Endpoint& /*endpoint*/) {
  return {{"answered_by", "kernel"},
          {"header_bytes", kIcmpHeaderBytes + kHeaderBytes},
          {"counters_from", "/proc/self/net/snmp"}};
}

std::unique_ptr<Server> make_server(const Endpoint& /*endpoint*/) {
  return std::make_unique<IcmpServer>();
}

std::unique_ptr<Client> make_client(const Endpoint& endpoint, uint32_t requester) {
  return std::make_unique<IcmpClient>(endpoint, requester);
}

}  // namespace tare::echo
