// The real UDP client, over loopback, against the real server and against one that misbehaves.
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <thread>

#include "allocation_count.h"
#include "exchange.h"
#include "socket.h"
#include "transport.h"

namespace tare::echo {
namespace {

constexpr uint32_t kPayload = 64;
constexpr uint32_t kMe = 5;

// Takes a port that is free now.
uint16_t free_port() {
  const Fd socket = open_socket(AF_INET, SOCK_DGRAM, 0);
  bind_to(socket.get(), "127.0.0.1", 0);
  sockaddr_in name = {};
  socklen_t length = sizeof name;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length);
  return ntohs(name.sin_port);
}

Endpoint loopback(uint16_t port) {
  Endpoint endpoint;
  endpoint.bind = "127.0.0.1";
  endpoint.peers = {"127.0.0.1"};
  endpoint.port = port;
  endpoint.payload_bytes = kPayload;
  endpoint.receive_slice_ns = 5'000'000;
  return endpoint;
}

// Answers by calling `reply` with each request that was read, and a way to send a datagram back.
class BadServer {
 public:
  using Datagram = std::vector<std::byte>;
  using Back = std::function<void(const Datagram&)>;
  using Script = std::function<void(uint32_t sequence, const Datagram& request, const Back& back)>;

  explicit BadServer(const Script& script)
      : port_(free_port()), socket_(open_socket(AF_INET, SOCK_DGRAM, 0)) {
    bind_to(socket_.get(), "127.0.0.1", port_);
    thread_ = std::jthread([this, script](const std::stop_token& stop) {
      Ticker ticker;
      ticker.start(5'000'000);
      while (!stop.stop_requested()) {
        Datagram datagram(65536);
        SocketAddress from;
        from.length = sizeof from.storage;
        const ssize_t length = recvfrom(socket_.get(), datagram.data(), datagram.size(), 0,
                                        reinterpret_cast<sockaddr*>(&from.storage), &from.length);
        if (length < 0) continue;
        datagram.resize(static_cast<std::size_t>(length));
        script(decode_message(datagram)->sequence, datagram, [&](const Datagram& answer) {
          sendto(socket_.get(), answer.data(), answer.size(), 0, from.get(), from.length);
        });
      }
    });
  }

  uint16_t port() const { return port_; }

 private:
  const uint16_t port_;
  const Fd socket_;
  std::jthread thread_;
};

PhaseResult run_against(uint16_t port, uint64_t requests, std::vector<Sample>& samples) {
  const auto client = make_client(loopback(port), kMe);
  const PayloadSource payloads(1, kPayload);
  const std::atomic<bool> stop = false;
  Exchange exchange(*client, kMe, 0, payloads, 5'000'000, stop);
  samples.assign(requests, Sample{});
  return exchange.run({.mode = Mode::kClosed,
                       .requests = requests,
                       .outstanding = 1,
                       .timeout_ns = 50'000'000,
                       .give_up_after = 5},
                      samples);
}

TEST(Udp, CountsWhatABadServerDoesToTheReplies) {
  const BadServer server([](uint32_t sequence, const auto& request, const auto& back) {
    auto changed = request;
    switch (sequence) {
      case 1:
        return;  // lost
      case 2:    // twice
        back(request);
        back(request);
        return;
      case 3:  // corrupted
        changed.back() ^= std::byte{1};
        back(changed);
        return;
      case 4:  // cut short
        changed.pop_back();
        back(changed);
        return;
      case 5:  // not ours at all, then the answer
        back({std::byte{1}, std::byte{2}});
        back(request);
        return;
      default:
        back(request);
    }
  });
  std::vector<Sample> samples;
  const PhaseResult result = run_against(server.port(), 10, samples);
  EXPECT_EQ(result.counters.sent, 10u);
  EXPECT_EQ(result.counters.received, 7u);
  EXPECT_EQ(result.counters.lost, 3u);
  EXPECT_EQ(result.counters.duplicated, 1u);
  EXPECT_EQ(result.counters.corrupted, 3u);
}

TEST(Udp, GivesUpWhereNobodyListens) {
  std::vector<Sample> samples;
  const PhaseResult result = run_against(free_port(), 1000, samples);
  EXPECT_EQ(result.ending, Ending::kGaveUp);
  EXPECT_EQ(result.counters.lost, 5u);
  EXPECT_EQ(result.counters.received, 0u);
}

TEST(Udp, AllocatesNothingWhileItMeasures) {
  const Endpoint endpoint = loopback(free_port());
  const auto server = make_server(endpoint);
  std::atomic<bool> stop = false;
  std::thread serving([&] { server->serve(stop); });

  const auto client = make_client(endpoint, kMe);
  const PayloadSource payloads(1, kPayload);
  Exchange exchange(*client, kMe, 0, payloads, endpoint.receive_slice_ns, stop);
  ASSERT_TRUE(exchange.probe(5'000'000'000));
  std::vector<Sample> samples(2000);
  Plan plan = {.mode = Mode::kClosed,
               .requests = samples.size(),
               .rate = 10'000,
               .outstanding = 1,
               .timeout_ns = 1'000'000'000,
               .give_up_after = 5};
  for (const Mode mode : {Mode::kClosed, Mode::kOpen}) {
    plan.mode = mode;
    const uint64_t before = allocation_count();
    const PhaseResult result = exchange.run(plan, samples);
    EXPECT_EQ(allocation_count() - before, 0u);
    EXPECT_EQ(result.counters.received, samples.size());
  }
  stop = true;
  serving.join();
  EXPECT_EQ(server->counters.bad, 0u);
  EXPECT_EQ(server->counters.replies, server->counters.requests);
}

// A pair of sockets of which one takes no more.
struct FullSocket {
  FullSocket() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
    near = Fd(ends[0]);
    far = Fd(ends[1]);
    while (send(near.get(), "x", 1, MSG_DONTWAIT) == 1) {
    }
  }
  void take() const {
    char one = 0;
    EXPECT_EQ(recv(far.get(), &one, 1, 0), 1);
  }
  Fd near;
  Fd far;
};

std::atomic<int> g_ticks = 0;

// Sends on a thread with a Ticker whose signals are counted.
bool send_while_ticking(const Fd& socket, const std::atomic<bool>& stop) {
  Ticker ticker;
  ticker.start(1'000'000);
  g_ticks = 0;
  struct sigaction counting = {};
  counting.sa_handler = [](int) { ++g_ticks; };
  sigaction(SIGALRM, &counting, nullptr);
  const bool sent = send_datagram(socket.get(), std::as_bytes(std::span("y", 1)), stop);
  counting.sa_handler = [](int) {};
  sigaction(SIGALRM, &counting, nullptr);
  return sent;
}

TEST(Datagram, ThatWaitsForRoomIsNotRefusedByTheTicker) {
  const FullSocket socket;
  const std::atomic<bool> stop = false;
  std::atomic<bool> over = false;
  std::thread sending([&] {
    EXPECT_TRUE(send_while_ticking(socket.near, stop));
    over = true;
  });
  while (g_ticks < 3 && !over) std::this_thread::yield();
  EXPECT_FALSE(over);
  socket.take();
  sending.join();
}

TEST(Datagram, ThatFindsNoRoomIsGivenUpWhenStopped) {
  const FullSocket socket;
  const std::atomic<bool> stop = true;
  EXPECT_FALSE(send_while_ticking(socket.near, stop));
}

TEST(Udp, ServerCountsWhatIsNoRequestAndAnswersNothing) {
  const Endpoint endpoint = loopback(free_port());
  const auto server = make_server(endpoint);
  const Fd socket = open_socket(AF_INET, SOCK_DGRAM, 0);
  const SocketAddress address = resolve("127.0.0.1", endpoint.port);
  ASSERT_EQ(sendto(socket.get(), "rubbish", 7, 0, address.get(), address.length), 7);
  std::atomic<bool> stop = false;
  std::thread serving([&] { server->serve(stop); });
  while (server->counters.requests == 0) std::this_thread::yield();
  stop = true;
  serving.join();
  EXPECT_EQ(server->counters.bad, 1u);
  EXPECT_EQ(server->counters.replies, 0u);
}

}  // namespace
}  // namespace tare::echo
