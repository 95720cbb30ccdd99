// A manager and its peers at their limits: no descriptor left, no answer, an answer that takes
// long.
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>

#include "../nodes/node_client.h"
#include "../nodes/rendezvous.h"
#include "../nodes/start_manager.h"
#include "../settings/launcher.h"
#include "../system/real.h"
#include "cached_file_fixture.h"
#include "interrupted.h"

namespace nvio {
namespace {

using Clients = std::vector<std::unique_ptr<NodeClient>>;

class PeersTest : public CachedFileTest {
 protected:
  void SetUp() override {
    CachedFileTest::SetUp();
    settings_.nodes = 2;
    settings_.node = 1;
    settings_.quiet = true;
    getrlimit(RLIMIT_NOFILE, &before_);
  }

  void TearDown() override {
    setrlimit(RLIMIT_NOFILE, &before_);
    clients_.clear();
    expect_store_to_go();
    CachedFileTest::TearDown();
  }

  // Connects one more peer; what it was told if that failed.
  std::string connect_one() {
    std::string why;
    auto client = std::make_unique<NodeClient>(settings_, 0);
    if (!client->connect(why)) return why;
    clients_.push_back(std::move(client));
    return {};
  }

  pid_t manager() const {
    std::string text;
    EXPECT_TRUE(read_text(store_folder(settings_, 0) + "/manager.lock", text));
    return std::atoi(text.c_str());
  }

  rlimit limit_of_manager() const {
    rlimit limit{};
    EXPECT_EQ(prlimit(manager(), RLIMIT_NOFILE, nullptr, &limit), 0);
    return limit;
  }

  void limit_manager(rlim_t descriptors) const {
    const rlimit limit{descriptors, descriptors};
    ASSERT_EQ(prlimit(manager(), RLIMIT_NOFILE, &limit, nullptr), 0);
  }

  // An operation on a file that is not open: any answer will do.
  static int ask(NodeClient& client) {
    Request request{};
    request.operation = Operation::size;
    Reply reply{};
    return client.call(request, {}, reply);
  }

  rlimit before_{};
  Clients clients_;
};

TEST_F(PeersTest, SixtyAtALimitOf48AreServedOrToldWhyNot) {
  ASSERT_EQ(connect_one(), "");
  limit_manager(48);
  std::size_t refused = 0;
  for (int i = 1; i < 60; ++i) {
    const std::string why = connect_one();
    if (why.empty()) continue;
    ++refused;
    EXPECT_NE(why.find("limit of 48 open files"), std::string::npos) << why;
  }
  EXPECT_EQ(clients_.size() + refused, 60U);
  EXPECT_GE(clients_.size(), 16U);
  EXPECT_GE(refused, 12U) << "the files of the job need descriptors, too";
  for (const auto& client : clients_) EXPECT_EQ(ask(*client), EBADF);
  // Who leaves makes room.
  clients_.pop_back();
  std::string why = "not tried";
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!why.empty() && std::chrono::steady_clock::now() < give_up) why = connect_one();
  EXPECT_EQ(why, "");
}

TEST_F(PeersTest, WithoutAnyDescriptorLeftAPeerIsToldSoByTheOneThatIsKept) {
  ASSERT_EQ(connect_one(), "");
  ASSERT_EQ(connect_one(), "");
  ASSERT_EQ(ask(*clients_.back()), EBADF);
  rlim_t used = 0;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(manager()) + "/fd")) {
    used = std::max<rlim_t>(used, std::stoul(entry.path().filename()) + 1);
  }
  limit_manager(used);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(connect_one().find("open files leaves no room"), std::string::npos);
  }
  for (const auto& client : clients_) EXPECT_EQ(ask(*client), EBADF);
}

TEST_F(PeersTest, TheManagerAloneRaisesItsSoftLimitToTheHardOne) {
  rlimit small = before_;
  small.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  ASSERT_EQ(connect_one(), "");
  EXPECT_EQ(limit_of_manager().rlim_cur, before_.rlim_max);
  rlimit own{};
  getrlimit(RLIMIT_NOFILE, &own);
  EXPECT_EQ(own.rlim_cur, 64U);
}

TEST_F(PeersTest, AManagerThatSaysNothingIsNotWaitedForForEver) {
  settings_.silence = kLeastSilence;
  ASSERT_EQ(connect_one(), "");
  ASSERT_EQ(ask(*clients_.front()), EBADF);
  const pid_t stopped = manager();
  kill(stopped, SIGSTOP);
  EXPECT_EQ(ask(*clients_.front()), EIO);
  EXPECT_TRUE(clients_.front()->is_broken());
  kill(stopped, SIGCONT);
}

// Nor one that waits itself, for who has the store alone, while signals interrupt who started it.
TEST_F(PeersTest, AManagerThatDoesNotGetReadyIsNotWaitedForForEver) {
  const std::string store = store_folder(settings_, 0);
  fs::create_directory(store);
  fs::permissions(store, fs::perms::owner_all);
  LifeLock held(::open((store + "/alive").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(held.take_alone());
  settings_.silence = 1;
  std::string why;
  {
    const Interrupted often;
    EXPECT_EQ(start_manager(settings_, 0, why), Started::failed);
  }
  EXPECT_NE(why.find("does not get ready"), std::string::npos) << why;
  held.give_up();
  settings_.silence = kLeastSilence;
  EXPECT_EQ(connect_one(), "");
}

// Processes with a network of their own; a wire joins them, till it is cut at the manager's end.
class Hosts {
 public:
  Hosts() { EXPECT_EQ(pipe(up_), 0); }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  ~Hosts() {
    for (const pid_t host : hosts_) {
      kill(host, SIGKILL);
      waitpid(host, nullptr, 0);
    }
    for (const int end : up_) ::close(end);
  }

  // A host that lives till it is ended, and does `act` first. Returns once that is done.
  template <typename Act>
  pid_t add(Act&& act) {
    const pid_t host = fork();
    if (host == 0) {
      const char done = unshare(CLONE_NEWNET) == 0 && run("ip link set lo up") && act() ? 'y' : 'n';
      if (write(up_[1], &done, 1) != 1) _exit(1);
      for (;;) pause();
    }
    hosts_.push_back(host);
    char done = 'n';
    EXPECT_EQ(::read(up_[0], &done, 1), 1);
    EXPECT_EQ(done, 'y');
    return host;
  }
  static bool run(const std::string& command) { return std::system(command.c_str()) == 0; }

 private:
  int up_[2]{};
  std::vector<pid_t> hosts_;
};

class HostsTest : public PeersTest, public testing::WithParamInterface<Connections> {};
INSTANTIATE_TEST_SUITE_P(All, HostsTest, testing::Values(Connections::direct, Connections::relayed),
                         [](const auto& one) {
                           return one.param == Connections::direct ? "direct" : "relayed";
                         });

TEST_P(HostsTest, AMachineThatIsGoneIsNoticedAtBothEnds) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes networks";
  settings_.silence = kLeastSilence;
  settings_.rendezvous = root_ + "/meet";
  fs::create_directory(settings_.rendezvous);
  {
    Hosts hosts;
    const pid_t far = hosts.add([] { return true; });
    const std::string there = "nsenter -t " + std::to_string(far) + " -n ip ";
    // The far end's network is entered to start the manager there.
    hosts.add([&] {
      std::string why;
      const int network = ::open(("/proc/" + std::to_string(far) + "/ns/net").c_str(), O_RDONLY);
      if (!Hosts::run("ip link add wire type veth peer name wire netns " + std::to_string(far)) ||
          !Hosts::run("ip address add 10.79.0.1/24 dev wire && ip link set wire up") ||
          !Hosts::run(there + "address add 10.79.0.2/24 dev wire && " + there +
                      "link set wire up")) {
        return false;
      }
      const int own = ::open("/proc/self/ns/net", O_RDONLY);
      settings_.address = "10.79.0.2";
      auto local = std::make_unique<NodeClient>(settings_, 1);
      if (setns(network, CLONE_NEWNET) != 0 || !local->connect(why)) return false;
      if (setns(own, CLONE_NEWNET) != 0) return false;
      Settings other = settings_;
      other.node = 0;
      other.address = "10.79.0.1";
      NodeClient own_manager(other, 0);
      const bool is_relayed = GetParam() == Connections::relayed;
      if (is_relayed && !own_manager.connect(why)) return false;
      NodeClient client(other, 1, is_relayed ? &own_manager : nullptr);
      if (!client.connect(why) || ask(client) != EBADF) return false;
      local.reset();
      // The manager has one peer left, and hears nothing of it any more.
      return Hosts::run(there + "link set wire down") && ask(client) == EIO;
    });
  }
  // TearDown waits for the manager's end.
}

// The other end of a client, as the wire has it, with what it says in the hands of a test.
class Answers {
 public:
  Answers(Channel& channel) : channel_(channel) {}
  void shake_hands() {
    Hello hello{};
    ASSERT_EQ(receive_all(channel_, &hello, sizeof hello), 0);
    Welcome welcome{};
    std::memcpy(welcome.magic, kWireMagic, sizeof kWireMagic);
    welcome.version = kWireVersion;
    welcome.proof = manager_proof({}, hello.nonce, welcome.nonce);
    say(&welcome, sizeof welcome);
    Digest proof{};
    ASSERT_EQ(receive_all(channel_, proof.data(), proof.size()), 0);
  }
  void say(const void* bytes, std::size_t size) {
    const iovec vector{const_cast<void*>(bytes), size};
    ASSERT_EQ(send_all(channel_, &vector, 1), 0);
  }
  Channel& channel_;
};

TEST_F(PeersTest, WordsThatARequestIsWorkedOnAreNoAnswer) {
  const std::string folder = store_folder(settings_, 0);
  fs::create_directory(folder);
  std::string why;
  {
    const auto listener = listen_at(local_address(settings_, 0), {}, why);
    ASSERT_NE(listener, nullptr) << why;
    Reply working{};
    working.magic = kWorkingMagic;
    Reply reply{};
    reply.magic = kReplyMagic;
    reply.payload = 100;
    std::string said;
    for (int i = 0; i < 3; ++i)
      said.append(reinterpret_cast<const char*>(&working), sizeof working);
    said.append(reinterpret_cast<const char*>(&reply), sizeof reply);
    for (char c = 0; c < 100; ++c) said += c;
    // However the bytes are cut.
    std::thread manager([&] {
      std::unique_ptr<Channel> channel;
      while ((channel = listener->accept()) == nullptr) std::this_thread::yield();
      Answers answers(*channel);
      answers.shake_hands();
      for (std::size_t cut = 0; cut < said.size(); cut += 7) {
        Request request{};
        ASSERT_EQ(receive_all(*channel, &request, sizeof request), 0);
        answers.say(said.data(), cut);
        answers.say(said.data() + cut, said.size() - cut);
      }
    });
    NodeClient client(settings_, 0);
    EXPECT_TRUE(client.connect(why)) << why;
    for (std::size_t cut = 0; cut < said.size(); cut += 7) {
      std::vector<std::byte> room(100);
      Reply got{};
      EXPECT_EQ(client.call({}, {}, got, room), 0);
      EXPECT_EQ(std::memcmp(room.data(), said.data() + said.size() - 100, 100), 0);
    }
    manager.join();
  }
  fs::remove_all(folder);
}

TEST_F(PeersTest, AManagerSaysThatItWorksOnARequestThatTakesLong) {
  settings_.silence = kLeastSilence;
  ASSERT_EQ(connect_one(), "");
  std::string why;
  const auto channel = connect_to(local_address(settings_, 0), {}, why);
  ASSERT_NE(channel, nullptr) << why;
  const auto send = [&](const void* bytes, std::size_t size) {
    const iovec vector{const_cast<void*>(bytes), size};
    ASSERT_EQ(send_all(*channel, &vector, 1), 0);
  };
  Hello hello{};
  std::memcpy(hello.magic, kWireMagic, sizeof kWireMagic);
  hello.version = kWireVersion;
  hello.caller = kProcess;
  send(&hello, sizeof hello);
  Welcome welcome{};
  ASSERT_EQ(receive_all(*channel, &welcome, sizeof welcome), 0);
  const Digest proof = client_proof({}, hello.nonce, welcome.nonce);
  send(proof.data(), proof.size());

  const int fd = open_file();
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  OpenRequest open;
  open.inode = status.st_ino;
  open.access = kReads | kWrites;
  open.settings = settings_.file;
  open.path = path_;
  const auto payload = open_payload(open);
  Request request{};
  request.magic = kRequestMagic;
  request.operation = Operation::open;
  request.payload = static_cast<std::uint32_t>(payload.size());
  send(&request, sizeof request);
  send(payload.data(), payload.size());
  Reply reply{};
  while (reply.magic != kReplyMagic) {
    ASSERT_EQ(receive_all(*channel, &reply, sizeof reply), 0);
  }
  ASSERT_EQ(reply.error, 0);
  // Its sync waits for whoever holds the file's lock.
  Settings own = settings_;
  own.node = 0;
  const auto session = Session::join(own, why);
  ASSERT_NE(session, nullptr) << why;
  const std::uint32_t index = session->segment().find(status);
  ::close(fd);
  ASSERT_NE(index, kNone);
  request.operation = Operation::sync;
  request.file = reply.file;
  request.payload = 0;
  std::unique_lock held(session->segment().file(index).lock);
  send(&request, sizeof request);
  ASSERT_EQ(receive_all(*channel, &reply, sizeof reply), 0);
  EXPECT_EQ(reply.magic, kWorkingMagic);
  held.unlock();
  while (reply.magic == kWorkingMagic) {
    ASSERT_EQ(receive_all(*channel, &reply, sizeof reply), 0);
  }
  EXPECT_EQ(reply.magic, kReplyMagic);
  EXPECT_EQ(reply.error, 0);
}

}  // namespace
}  // namespace nvio
