// A peer that says nothing is not waited for for ever, nor one that is slow taken for gone, however
// often signals interrupt who waits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../transport/transport.h"
#include "interrupted.h"
#include "temporary_store.h"

namespace nvio {
namespace {

constexpr Silence kShort{std::chrono::seconds(1)};

class SilenceTest : public ::testing::Test, protected TemporaryStore {
 protected:
  SilenceTest() : TemporaryStore("silence") {}

  void SetUp() override {
    std::string why;
    listener_ = listen_at(address(), kShort, why);
    ASSERT_NE(listener_, nullptr) << why;
    channel_ = connect_to(address(), kShort, why);
    ASSERT_NE(channel_, nullptr) << why;
  }

  std::string address() const { return "unix:" + root_ + "/socket"; }

  // What act() returns in a process of its own that signals interrupt; -1 if it has no end.
  template <typename Act>
  static int interrupted(Act&& act) {
    const pid_t child = fork();
    if (child == 0) {
      const Interrupted often;
      _exit(act());
    }
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() >= give_up) kill(child, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(SilenceTest, WhoSendsNothingIsNotWaitedForForEver) {
  EXPECT_EQ(interrupted([this] {
              char byte = 0;
              return receive_all(*channel_, &byte, 1);
            }),
            ETIMEDOUT);
}

TEST_F(SilenceTest, WhoTakesNothingIsNotWaitedForForEver) {
  EXPECT_EQ(interrupted([this] {
              std::vector<char> much(64 << 20);
              const iovec vector{much.data(), much.size()};
              return send_all(*channel_, &vector, 1);
            }),
            ETIMEDOUT);
}

// The peer has no room for another, till so many signals have come that one of them has interrupted
// who connects.
TEST_F(SilenceTest, WhoIsSlowToAcceptIsConnectedTo) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = root_ + "/slow";
  std::memcpy(name.sun_path, path.data(), path.size());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  const Silence long_enough;
  std::string why;
  const auto first = connect_to("unix:" + path, long_enough, why);
  ASSERT_NE(first, nullptr) << why;
  static int signals[2];
  ASSERT_EQ(pipe2(signals, O_CLOEXEC | O_NONBLOCK), 0);
  std::thread accepts([listener] {
    constexpr int kSignals = 20;
    char byte = 0;
    for (int seen = 0; seen < kSignals;) {
      if (::read(signals[0], &byte, 1) == 1) ++seen;
    }
    ::close(accept(listener, nullptr, nullptr));
  });
  const Interrupted often([](int) {
    if (::write(signals[1], "!", 1) != 1) return;
  });
  const auto second = connect_to("unix:" + path, long_enough, why);
  EXPECT_NE(second, nullptr) << why;
  accepts.join();
  for (const int fd : {listener, signals[0], signals[1]}) ::close(fd);
}

}  // namespace
}  // namespace nvio
