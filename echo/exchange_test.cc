#include "exchange.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include "allocation_count.h"
#include "clock.h"

namespace tare::echo {
namespace {

constexpr std::size_t kPayload = 64;
constexpr uint32_t kMe = 42;
constexpr int64_t kSlice = 1'000'000;

// A client and its misbehaving server in one: `serve` decides what comes back for a request.
class ScriptedClient final : public Client {
 public:
  struct Reply {
    uint32_t requester = kMe;
    uint32_t sequence = 0;
    uint64_t checksum = 0;
    std::vector<std::byte> payload;
  };
  using Script = std::function<void(const Reply& request, std::deque<Reply>& replies)>;

  explicit ScriptedClient(Script script) : script_(std::move(script)) {}

  void attach(ReplySink& sink) override { sink_ = &sink; }
  std::span<std::byte> payload() override { return payload_; }

  bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) override {
    script_({requester, sequence, checksum, payload_}, replies_);
    return true;
  }

  bool wait(int64_t timeout_ns) override {
    if (replies_.empty()) {
      const int64_t until = now_ns() + timeout_ns;
      while (now_ns() < until) std::this_thread::yield();
      return false;
    }
    const Reply reply = std::move(replies_.front());
    replies_.pop_front();
    sink_->on_reply({reply.requester, reply.sequence, reply.checksum, reply.payload}, now_ns());
    return true;
  }

 private:
  const Script script_;
  std::vector<std::byte> payload_ = std::vector<std::byte>(kPayload);
  std::deque<Reply> replies_;
  ReplySink* sink_ = nullptr;
};

struct Fixture {
  explicit Fixture(ScriptedClient::Script script)
      : client(std::move(script)), exchange(client, kMe, 3, payloads, kSlice, stop) {}

  PhaseResult run(const Plan& plan) {
    samples.assign(plan.requests, Sample{});
    return exchange.run(plan, samples);
  }

  ScriptedClient client;
  PayloadSource payloads{1, kPayload};
  std::atomic<bool> stop = false;
  Exchange exchange;
  std::vector<Sample> samples;
};

const ScriptedClient::Script kFaithful = [](const auto& request, auto& replies) {
  replies.push_back(request);
};

// What answers one request only with the next.
ScriptedClient::Script holding(uint32_t sequence) {
  std::deque<ScriptedClient::Reply> held;
  return [sequence, held](const auto& request, auto& replies) mutable {
    if (request.sequence == sequence) {
      held.push_back(request);
      return;
    }
    if (!held.empty()) {
      replies.push_back(held.front());
      held.pop_front();
    }
    replies.push_back(request);
  };
}

Plan closed(uint64_t requests) {
  return {.mode = Mode::kClosed,
          .requests = requests,
          .outstanding = 1,
          .timeout_ns = 3'000'000,
          .give_up_after = 10};
}

TEST(Exchange, RecordsEveryRequestOfAFaithfulServer) {
  Fixture fixture(kFaithful);
  const PhaseResult result = fixture.run(closed(1000));
  EXPECT_EQ(result.counters.sent, 1000u);
  EXPECT_EQ(result.counters.received, 1000u);
  EXPECT_EQ(result.counters.lost, 0u);
  EXPECT_EQ(result.ending, Ending::kRequests);
  int64_t before = result.start_ns;
  for (uint32_t i = 0; i < 1000; ++i) {
    const Sample& sample = fixture.samples[i];
    EXPECT_EQ(sample.client, 3u);
    EXPECT_EQ(sample.sequence, i);
    EXPECT_EQ(sample.intended_ns, sample.sent_ns);
    EXPECT_LE(before, sample.sent_ns);
    EXPECT_LE(sample.sent_ns, sample.received_ns);
    before = sample.received_ns;
  }
  EXPECT_LE(before, result.end_ns);
}

TEST(Exchange, CountsARequestWithoutReplyAsLostAndGoesOn) {
  Fixture fixture([](const auto& request, auto& replies) {
    if (request.sequence % 10 != 4) replies.push_back(request);
  });
  const PhaseResult result = fixture.run(closed(50));
  EXPECT_EQ(result.counters.sent, 50u);
  EXPECT_EQ(result.counters.received, 45u);
  EXPECT_EQ(result.counters.lost, 5u);
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(fixture.samples[i].received_ns == kLost, i % 10 == 4);
  }
}

TEST(Exchange, CountsEachKindOfBadReplyByItsName) {
  Fixture fixture([](const auto& request, auto& replies) {
    switch (request.sequence) {
      case 0: {  // a flipped bit, then nothing
        auto flipped = request;
        flipped.payload[9] ^= std::byte{8};
        replies.push_back(flipped);
        return;
      }
      case 1: {  // cut short
        auto shorter = request;
        shorter.payload.resize(kPayload / 2);
        shorter.checksum = checksum_of(kMe, 1, shorter.payload);
        replies.push_back(shorter);
        return;
      }
      case 2:  // twice
        replies.push_back(request);
        replies.push_back(request);
        return;
      case 3: {  // a reply to a request that was never sent, then the right one
        auto invented = request;
        invented.sequence = 99;
        invented.checksum = checksum_of(kMe, 99, invented.payload);
        replies.push_back(invented);
        replies.push_back(request);
        return;
      }
      case 4: {  // someone else's, then ours
        auto other = request;
        other.requester = kMe + 1;
        replies.push_back(other);
        replies.push_back(request);
        return;
      }
      default:
        replies.push_back(request);
    }
  });
  const PhaseResult result = fixture.run(closed(10));
  EXPECT_EQ(result.counters.sent, 10u);
  EXPECT_EQ(result.counters.received, 8u);
  EXPECT_EQ(result.counters.lost, 2u);
  EXPECT_EQ(result.counters.corrupted, 3u);
  EXPECT_EQ(result.counters.duplicated, 1u);
  EXPECT_EQ(result.counters.foreign, 1u);
  EXPECT_EQ(result.counters.reordered, 0u);
}

TEST(Exchange, CountsReorderedRepliesAndKeepsTheirTimes) {
  std::deque<ScriptedClient::Reply> held;
  Fixture fixture([&](const auto& request, auto& replies) {
    if (request.sequence % 2 == 0) {
      held.push_back(request);
      return;
    }
    replies.push_back(request);
    replies.push_back(held.front());
    held.pop_front();
  });
  Plan plan = closed(20);
  plan.outstanding = 2;
  const PhaseResult result = fixture.run(plan);
  EXPECT_EQ(result.counters.received, 20u);
  EXPECT_EQ(result.counters.reordered, 10u);
}

TEST(Exchange, CountsTheReplyToARequestGivenUpAsLateAndLeavesItLost) {
  Fixture fixture(holding(0));
  const PhaseResult result = fixture.run(closed(5));
  EXPECT_EQ(result.counters.lost, 1u);
  EXPECT_EQ(result.counters.late, 1u);
  EXPECT_EQ(result.counters.received, 4u);
  EXPECT_EQ(fixture.samples[0].received_ns, kLost);
}

TEST(Exchange, KeepsRepliesOfTheWarmupOutOfTheMeasurement) {
  Fixture fixture(holding(9));
  fixture.run(closed(10));
  const PhaseResult result = fixture.run(closed(10));
  EXPECT_EQ(result.counters.late, 1u);
  EXPECT_EQ(result.counters.received, 10u);
  EXPECT_EQ(fixture.samples[0].sequence, 0u);
}

TEST(Exchange, GivesUpOnAServerThatHasDied) {
  Fixture fixture([](const auto& request, auto& replies) {
    if (request.sequence < 5) replies.push_back(request);
  });
  Plan plan = closed(1000);
  plan.give_up_after = 3;
  const PhaseResult result = fixture.run(plan);
  EXPECT_EQ(result.ending, Ending::kGaveUp);
  EXPECT_EQ(result.counters.received, 5u);
  EXPECT_EQ(result.counters.lost, 3u);
  EXPECT_EQ(result.counters.sent, 8u);
}

TEST(Exchange, EndsAtTheDuration) {
  Fixture fixture([](const auto& request, auto& replies) {
    spin_for(100'000);
    replies.push_back(request);
  });
  Plan plan = closed(100'000);
  plan.duration_ns = 2'000'000;
  plan.timeout_ns = 1'000'000'000;
  const PhaseResult result = fixture.run(plan);
  EXPECT_EQ(result.ending, Ending::kDuration);
  EXPECT_GE(result.end_ns - result.start_ns, plan.duration_ns);
  EXPECT_LE(result.counters.sent, 20u);
  EXPECT_EQ(result.counters.sent, result.counters.received);
}

// Else the end of a phase would hide what a stall before it has cost.
TEST(Exchange, SendsAllThatWasDueWithinTheDurationOfAnOpenLoop) {
  Fixture fixture([](const auto& request, auto& replies) {
    if (request.sequence == 20) spin_for(40'000'000);
    replies.push_back(request);
  });
  const PhaseResult result = fixture.run({.mode = Mode::kOpen,
                                          .requests = 1000,
                                          .duration_ns = 50'000'000,
                                          .rate = 1000,
                                          .outstanding = 1,
                                          .timeout_ns = 1'000'000'000,
                                          .give_up_after = 10});
  EXPECT_EQ(result.ending, Ending::kDuration);
  EXPECT_EQ(result.counters.sent, 50u);
  EXPECT_EQ(result.counters.received, 50u);
}

TEST(Exchange, StopsWhenToldAndCountsTheRestAsLost) {
  Fixture* me = nullptr;
  Fixture fixture([&](const auto& request, auto& replies) {
    if (request.sequence < 7) {
      replies.push_back(request);
    } else {
      me->stop = true;
    }
  });
  me = &fixture;
  const PhaseResult result = fixture.run(closed(1000));
  EXPECT_EQ(result.ending, Ending::kInterrupted);
  EXPECT_EQ(result.counters.sent, 8u);
  EXPECT_EQ(result.counters.received, 7u);
  EXPECT_EQ(result.counters.lost, 1u);
}

TEST(Exchange, GivesUpWhenTheConnectionIsLost) {
  Fixture fixture([](const auto& request, auto& replies) {
    if (request.sequence == 3) throw ConnectionLost("gone");
    replies.push_back(request);
  });
  const PhaseResult result = fixture.run(closed(10));
  EXPECT_EQ(result.ending, Ending::kGaveUp);
  EXPECT_EQ(result.counters.received, 3u);
  EXPECT_EQ(result.counters.lost, 1u);
}

// The schedule is absolute: what was intended does not depend on when replies came.
TEST(Exchange, InAnOpenLoopIntendsEachSendOnTheSchedule) {
  for (const Pace pace : {Pace::kSleep, Pace::kSpin}) {
    Fixture fixture(kFaithful);
    const PhaseResult result = fixture.run({.mode = Mode::kOpen,
                                            .requests = 100,
                                            .rate = 3000,
                                            .first_send_ns = 5000,
                                            .pace = pace,
                                            .outstanding = 16,
                                            .timeout_ns = 1'000'000'000,
                                            .give_up_after = 10});
    EXPECT_EQ(result.counters.received, 100u);
    for (uint32_t i = 0; i < 100; ++i) {
      const Sample& sample = fixture.samples[i];
      EXPECT_EQ(sample.intended_ns - result.start_ns,
                5000 + static_cast<int64_t>(i * (1e9 / 3000)));
      EXPECT_GE(sample.sent_ns, sample.intended_ns);
    }
  }
}

// A server that stalls delays the sends behind it; their response times still count from the
// intended moments, or the stall would hide its own victims (coordinated omission).
TEST(Exchange, InAnOpenLoopCountsAStallAgainstEveryRequestThatItDelays) {
  constexpr int64_t kStall = 20'000'000;
  Fixture fixture([&](const auto& request, auto& replies) {
    if (request.sequence == 10) spin_for(kStall);
    replies.push_back(request);
  });
  const PhaseResult result = fixture.run({.mode = Mode::kOpen,
                                          .requests = 30,
                                          .rate = 1000,
                                          .pace = Pace::kSleep,
                                          .outstanding = 1,
                                          .timeout_ns = 10'000'000'000,
                                          .give_up_after = 10});
  EXPECT_EQ(result.counters.received, 30u);
  const Sample& victim = fixture.samples[15];  // due 5 ms into the stall
  EXPECT_GE(victim.received_ns - victim.intended_ns, kStall - 6'000'000);
  EXPECT_GE(victim.sent_ns, fixture.samples[10].sent_ns + kStall);
}

TEST(Exchange, NeverHasMoreOutstandingThanAllowed) {
  std::deque<ScriptedClient::Reply> held;
  std::size_t most = 0;
  Fixture fixture([&](const auto& request, auto& replies) {
    held.push_back(request);
    most = std::max(most, held.size());
    if (held.size() == 4) {
      for (; !held.empty(); held.pop_front()) replies.push_back(held.front());
    }
  });
  fixture.run({.mode = Mode::kOpen,
               .requests = 40,
               .rate = 1e6,
               .pace = Pace::kSleep,
               .outstanding = 4,
               .timeout_ns = 1'000'000'000,
               .give_up_after = 10});
  EXPECT_EQ(most, 4u);
}

// Middleware that calls back on its own thread, as with a DDS listener.
class CallbackClient final : public Client {
 public:
  CallbackClient() : thread_([this](const std::stop_token& stop) { answer(stop); }) {}
  ~CallbackClient() override {
    thread_.request_stop();
    changed_.notify_all();
  }

  void attach(ReplySink& sink) override { sink_ = &sink; }
  std::span<std::byte> payload() override { return payload_; }

  bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) override {
    const std::lock_guard lock(mutex_);
    sent_.push_back({requester, sequence, checksum, payload_});
    changed_.notify_all();
    return true;
  }

  bool wait(int64_t timeout_ns) override { return gate_.wait(timeout_ns); }

 private:
  void answer(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, std::chrono::milliseconds(1), [&] { return !sent_.empty(); })) {
        continue;
      }
      const ScriptedClient::Reply reply = std::move(sent_.front());
      sent_.pop_front();
      lock.unlock();
      if (sink_->on_reply({reply.requester, reply.sequence, reply.checksum, reply.payload},
                          now_ns())) {
        gate_.open();
      }
    }
  }

  std::vector<std::byte> payload_ = std::vector<std::byte>(kPayload);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ScriptedClient::Reply> sent_;
  ReplySink* sink_ = nullptr;
  Gate gate_;
  std::jthread thread_;
};

TEST(Exchange, MeasuresThroughCallbacksOfAnotherThread) {
  CallbackClient client;
  const PayloadSource payloads(1, kPayload);
  const std::atomic<bool> stop = false;
  Exchange exchange(client, kMe, 0, payloads, kSlice, stop);
  ASSERT_TRUE(exchange.probe(1'000'000'000));
  std::vector<Sample> samples(500);
  Plan plan = closed(500);
  plan.timeout_ns = 5'000'000'000;
  for (const uint32_t outstanding : {1, 4}) {
    plan.outstanding = outstanding;
    const PhaseResult result = exchange.run(plan, samples);
    EXPECT_EQ(result.counters.received, 500u);
    EXPECT_EQ(result.counters.corrupted, 0u);
  }
  plan.mode = Mode::kOpen;
  plan.rate = 20000;
  EXPECT_EQ(exchange.run(plan, samples).counters.received, 500u);
}

TEST(Exchange, AllocatesNothingWhileItMeasures) {
  // Answers from one fixed place, so that whatever is allocated is the exchange's doing.
  class Mirror final : public Client {
   public:
    void attach(ReplySink& sink) override { sink_ = &sink; }
    std::span<std::byte> payload() override { return payload_; }
    bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) override {
      request_ = {requester, sequence, checksum, payload_};
      pending_ = true;
      return true;
    }
    bool wait(int64_t /*timeout_ns*/) override {
      if (!std::exchange(pending_, false)) return false;
      sink_->on_reply(request_, now_ns());
      return true;
    }

   private:
    std::vector<std::byte> payload_ = std::vector<std::byte>(kPayload);
    Message request_;
    bool pending_ = false;
    ReplySink* sink_ = nullptr;
  };
  Mirror client;
  const PayloadSource payloads(1, kPayload);
  const std::atomic<bool> stop = false;
  Exchange exchange(client, kMe, 0, payloads, kSlice, stop);
  std::vector<Sample> samples(10'000);
  for (const Mode mode : {Mode::kClosed, Mode::kOpen}) {
    Plan plan = closed(samples.size());
    plan.mode = mode;
    plan.rate = 1e6;
    plan.timeout_ns = 10'000'000'000;  // however busy the machine
    const uint64_t before = allocation_count();
    const PhaseResult result = exchange.run(plan, samples);
    EXPECT_EQ(allocation_count() - before, 0u);
    EXPECT_EQ(result.counters.received, samples.size());
  }
}

}  // namespace
}  // namespace tare::echo
