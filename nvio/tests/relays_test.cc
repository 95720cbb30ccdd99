// Processes that speak to other nodes by way of their own node's manager: one connection a pair of
// nodes, no secret read by a process, and what becomes of them when another manager is lost, says
// nothing, has no room or talks nonsense.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "../nodes/node_client.h"
#include "../nodes/reach.h"
#include "../nodes/rendezvous.h"
#include "../settings/launcher.h"
#include "../system/real.h"
#include "../transport/lanes.h"
#include "cached_file_fixture.h"

namespace nvio {
namespace {

class RelaysTest : public CachedFileTest {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    settings_.nodes = 3;
    settings_.quiet = true;
  }

  void TearDown() override {
    ranks_.clear();
    expect_store_to_go();
    CachedFileTest::TearDown();
  }

  // What a process holds: its way to its own manager, and by that one to all others.
  struct Rank {
    Rank(const Settings& all, std::uint32_t node) : settings(all) {
      settings.node = node;
      own = std::make_unique<NodeClient>(settings, node);
      for (std::uint32_t other = 0; other < settings.nodes; ++other) {
        others.push_back(std::make_unique<NodeClient>(settings, other, own.get()));
      }
    }
    // An operation on a file that is not open: any answer will do.
    int ask(std::uint32_t node) {
      Request request{};
      request.operation = Operation::size;
      Reply reply{};
      return others[node]->call(request, {}, reply);
    }
    Settings settings;
    std::unique_ptr<NodeClient> own;
    std::vector<std::unique_ptr<NodeClient>> others;
  };

  Rank& rank(std::uint32_t node) {
    ranks_.push_back(std::make_unique<Rank>(settings_, node));
    std::string why;
    EXPECT_TRUE(ranks_.back()->own->connect(why)) << why;
    return *ranks_.back();
  }

  pid_t manager(std::uint32_t node) const {
    std::string text;
    EXPECT_TRUE(read_text(store_folder(settings_, node) + "/manager.lock", text));
    return std::atoi(text.c_str());
  }

  // That the manager of a node has, listeners among them.
  std::size_t sockets_of(std::uint32_t node) const {
    std::size_t sockets = 0;
    const std::string folder = "/proc/" + std::to_string(manager(node)) + "/fd";
    for (const auto& entry : fs::directory_iterator(folder)) {
      std::error_code gone;
      const std::string what = fs::read_symlink(entry.path(), gone).string();
      sockets += what.starts_with("socket:") ? 1U : 0U;
    }
    return sockets;
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
};

// All at once, so that both ends of a pair begin: again and again, since they seldom really meet.
TEST_F(RelaysTest, APairOfNodesHasOneConnectionWhoeverAsksFirst) {
  constexpr std::uint32_t kRanks = 4;
  for (int round = 0; round < 10; ++round) {
    for (std::uint32_t i = 0; i < kRanks * settings_.nodes; ++i) rank(i % settings_.nodes);
    std::vector<std::thread> threads;
    for (const auto& one : ranks_) {
      threads.emplace_back([&one] {
        for (int times = 0; times < 3; ++times) {
          for (std::uint32_t node = 0; node < one->settings.nodes; ++node) {
            if (node != one->settings.node) EXPECT_EQ(one->ask(node), EBADF);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
      // What a node refused is closed by the next turn of its loop.
      const std::size_t wanted = 1 + kRanks + settings_.nodes - 1;
      const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (sockets_of(node) != wanted && std::chrono::steady_clock::now() < give_up) {
        std::this_thread::yield();
      }
      EXPECT_EQ(sockets_of(node), wanted) << "round " << round;
    }
    ranks_.clear();
    expect_store_to_go();
  }
}

// The other end is the test: it takes the manager's call without a word, and calls itself.
TEST_F(RelaysTest, OfTwoManagersThatCallEachOtherTheLowerNodesConnectionStays) {
  for (const std::uint32_t own : {0U, 1U}) {
    const std::uint32_t other = 1 - own;
    const std::string folder = store_folder(settings_, other);
    fs::create_directory(folder);
    std::string why;
    auto listener = listen_at(local_address(settings_, other), {}, why);
    ASSERT_NE(listener, nullptr) << why;
    Rank& first = rank(own);
    std::thread asks([&] { EXPECT_EQ(first.ask(other), EBADF); });
    std::unique_ptr<Channel> called;
    while ((called = listener->accept()) == nullptr) std::this_thread::yield();
    Hello hello{};
    EXPECT_EQ(receive_all(*called, &hello, sizeof hello), 0);
    EXPECT_EQ(hello.caller, own);
    Settings theirs = settings_;
    theirs.node = other;
    Reached reached = reach_manager(theirs, own, other);
    EXPECT_EQ(reached.channel != nullptr, own > other) << reached.why;
    // Both are gone: the manager starts the real one, and asks that.
    listener.reset();
    fs::remove_all(folder);
    called.reset();
    reached.channel.reset();
    asks.join();
    ranks_.clear();
    expect_store_to_go();
  }
}

TEST_F(RelaysTest, WhereNothingIsAskedThereIsNoConnection) {
  Rank& first = rank(0);
  rank(1);
  rank(2);
  EXPECT_EQ(first.ask(1), EBADF);
  EXPECT_EQ(sockets_of(0), 3U);
  EXPECT_EQ(sockets_of(1), 3U);
  EXPECT_EQ(sockets_of(2), 2U) << "its listener and its own process";
}

TEST_F(RelaysTest, NoProcessReadsTheSecret) {
  settings_.rendezvous = root_ + "/meet";
  settings_.address = "127.0.0.1";
  fs::create_directory(settings_.rendezvous);
  for (std::uint32_t node = 0; node < settings_.nodes; ++node) rank(node);
  // The managers prove themselves to each other; then nobody can read it any more.
  for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
    EXPECT_EQ(ranks_[node]->ask((node + 1) % settings_.nodes), EBADF);
  }
  const std::string secret = rendezvous_folder(settings_) + "/secret";
  ASSERT_TRUE(fs::remove(secret));
  for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
    EXPECT_EQ(rank(node).ask((node + 2) % settings_.nodes), EBADF);
  }
  EXPECT_FALSE(fs::exists(secret)) << "who asks for it makes it";
}

TEST_F(RelaysTest, ALostManagerIsLostForGoodAndItsNodeAlone) {
  Rank& first = rank(0);
  Rank& second = rank(0);
  rank(1);
  rank(2);
  EXPECT_EQ(first.ask(1), EBADF);
  EXPECT_EQ(first.ask(2), EBADF);
  const pid_t lost = manager(1);
  kill(lost, SIGKILL);
  while (kill(lost, 0) == 0) std::this_thread::yield();
  EXPECT_EQ(first.ask(1), EIO);
  EXPECT_TRUE(first.others[1]->is_broken());
  EXPECT_EQ(first.ask(2), EBADF) << "over the same connection";
  // Who had not asked there yet has lost nothing: a new manager may come, as for any first call.
  EXPECT_EQ(second.ask(1), EBADF);
  EXPECT_EQ(first.ask(1), EIO) << "of its files the new one knows nothing";
}

TEST_F(RelaysTest, AManagerThatSaysNothingIsNotWaitedForForEver) {
  settings_.silence = kLeastSilence;
  Rank& first = rank(0);
  rank(1);
  EXPECT_EQ(first.ask(1), EBADF);
  const pid_t stopped = manager(1);
  kill(stopped, SIGSTOP);
  EXPECT_EQ(first.ask(1), EIO);
  EXPECT_TRUE(first.others[1]->is_broken());
  EXPECT_EQ(first.ask(2), EBADF) << "its own manager is as well as it was";
  kill(stopped, SIGCONT);
}

TEST_F(RelaysTest, AManagerWithoutADescriptorForAnotherSaysSoToWhoAsked) {
  Rank& first = rank(0);
  rank(1);
  rlim_t used = 0;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(manager(1)) + "/fd")) {
    used = std::max<rlim_t>(used, std::stoul(entry.path().filename()) + 1);
  }
  const rlimit limit{used, used};
  ASSERT_EQ(prlimit(manager(1), RLIMIT_NOFILE, &limit, nullptr), 0);
  first.settings.quiet = false;
  testing::internal::CaptureStderr();
  EXPECT_EQ(first.ask(1), EIO);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("cannot reach the manager of node 1"), std::string::npos) << said;
  EXPECT_NE(said.find("open files leaves no room for another"), std::string::npos) << said;
}

// One that knows the proof, and then says anything.
TEST_F(RelaysTest, WhatAManagerSaysThatBreaksARuleEndsItsConnectionAndNothingElse) {
  Rank& first = rank(0);
  EXPECT_EQ(first.ask(2), EBADF);
  std::mt19937_64 random(1);
  Settings other = settings_;
  other.node = 1;
  std::size_t taken = 0;
  for (int i = 0; i < 200; ++i) {
    const Reached reached = reach_manager(other, 0, 1);
    if (reached.channel == nullptr) continue;  // the one before it is not forgotten yet
    ++taken;
    std::string said;
    const auto add = [&](const auto& bytes) {
      said.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    };
    for (std::uint32_t lane = 0; lane < 6; lane += 2)
      add(Frame{kFrameMagic, lane, FrameKind::open, 0});
    for (int k = 0; k < 20; ++k) {
      Request request{};
      request.magic = kRequestMagic;
      request.operation = static_cast<Operation>(random() % 17);
      request.offset = random() % (8 << 20);
      request.length = random() % 5000;
      request.node = static_cast<std::uint32_t>(random() % 8 / 7);
      add(Frame{kFrameMagic, static_cast<std::uint32_t>(random() % 8),
                static_cast<FrameKind>(3 + random() % 2), sizeof request});
      add(request);
    }
    if (i % 2 == 0) said[random() % said.size()] = static_cast<char>(random());
    const iovec out{said.data(), said.size()};
    send_all(*reached.channel, &out, 1);
  }
  EXPECT_GT(taken, 10U);
  EXPECT_EQ(first.ask(2), EBADF);
  EXPECT_EQ(rank(2).ask(0), EBADF);
}

}  // namespace
}  // namespace nvio
