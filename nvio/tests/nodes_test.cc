// Several nodes of one job, each a Job of this process with its real manager: what one node writes
// the others read, whatever the owner of the bytes; who may talk to a manager; and that it ends.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "../nodes/placement.h"
#include "../nodes/rendezvous.h"
#include "../settings/launcher.h"
#include "jobs_fixture.h"

namespace nvio {
namespace {

class NodesTest : public JobsTest {
 protected:
  // Random operations by random nodes against one array of bytes.
  void run_histories(std::uint64_t seeds) {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      fs::remove(path_);
      settings_.file.spread = seed % 2 == 0 ? Spread::striped : Spread::parts;
      settings_.file.stripe = seed % 3 == 0 ? 0 : (seed % 3) * (3 << 19);
      if (seed % 2 == 1) std::ofstream(path_) << std::string(5 << 20, 'p');
      std::string model = file_content();
      const std::vector<JobFile*> files = open_everywhere();
      std::mt19937_64 random(seed);
      for (int step = 0; step < 300; ++step) {
        JobFile& file = *files[random() % files.size()];
        const std::uint64_t offset = random() % (7 << 20);
        constexpr std::size_t kMost[] = {16, 4096, 70000, 2500000};
        const std::size_t length = 1 + random() % kMost[random() % 4];
        const auto what = random() % 100;
        if (what < 45) {
          std::string data(length, static_cast<char>(random()));
          if (model.size() < offset + length) model.resize(offset + length);
          model.replace(offset, length, data);
          ASSERT_EQ(file.write(offset, data.data(), length), static_cast<ssize_t>(length));
        } else if (what < 90) {
          std::string got(length, 'x');
          const ssize_t done = file.read(offset, got.data(), length);
          const std::string want = offset < model.size() ? model.substr(offset, length) : "";
          ASSERT_EQ(done, static_cast<ssize_t>(want.size())) << "seed " << seed << " step " << step;
          got.resize(want.size());
          ASSERT_EQ(got == want, true) << "seed " << seed << " step " << step;
        } else if (what < 93) {
          ASSERT_EQ(file.sync(), 0);
        } else if (what < 95) {
          model.resize(offset);
          ASSERT_EQ(file.truncate(offset), 0);
        } else if (what < 99) {
          ASSERT_EQ(file.size(), model.size()) << "seed " << seed << " step " << step;
        } else if (seed % 4 == 3) {
          ASSERT_EQ(file.step_aside(), 0);
          ASSERT_EQ(file_content() == model, true) << "seed " << seed << " step " << step;
        }
      }
      ASSERT_EQ(release(files), 0);
      ASSERT_EQ(file_content() == model, true) << "seed " << seed;
    }
  }

  // A connection to the manager of node 0 by a peer that says what it likes.
  int stranger(const std::string& manager) {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = manager.substr(5);
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
};

INSTANTIATE_TEST_SUITE_P(All, NodesTest, testing::Values(Connections::direct, Connections::relayed),
                         [](const auto& one) {
                           return one.param == Connections::direct ? "direct" : "relayed";
                         });

TEST_P(NodesTest, AreOneFileUnderRandomHistories) {
  join_all();
  run_histories(8);
}

TEST_P(NodesTest, AreOneFileOverTcpToo) {
  settings_.rendezvous = root_ + "/meet";
  settings_.address = "127.0.0.1";
  fs::create_directory(settings_.rendezvous);
  join_all();
  run_histories(3);
  EXPECT_FALSE(published_address(settings_, 1).empty());
}

TEST_P(NodesTest, AdmissionLeftToNvioIsOneFile) {
  settings_.file.admit = Admit::automatic;
  join_all();
  run_histories(4);
}

// The whole of the state machine, though no call here is slow.
TEST_P(NodesTest, BeginToCacheTogetherAndStepAsideTogether) {
  settings_.file.admit = Admit::automatic;
  join_all();
  const std::vector<JobFile*> files = open_everywhere();
  const std::string data(3 << 20, 'd');
  ASSERT_EQ(files[0]->write(0, data.data(), data.size()), 3 << 20);
  for (JobFile* file : files) EXPECT_TRUE(file->cached().is_plain());
  EXPECT_EQ(file_content().size(), data.size()) << "nothing is cached yet";
  files[1]->prefetch(0, 1);
  for (JobFile* file : files) EXPECT_FALSE(file->cached().is_plain());
  char byte = 'n';
  ASSERT_EQ(files[2]->write(5 << 20, &byte, 1), 1);
  EXPECT_EQ(files[0]->size(), (5U << 20) + 1);
  ASSERT_EQ(files[0]->step_aside(), 0);
  EXPECT_EQ(file_content().size(), (5U << 20) + 1);
  for (JobFile* file : files) EXPECT_EQ(file->entry().left.load(), 1U);
  EXPECT_EQ(release(files), 0);
}

// A program that no rank has started: it sees what the file has, and must not take it for all.
TEST_P(NodesTest, WhoAsksForTheSizeFromOutsideHearsOfWhatAnotherNodeCaches) {
  join_all();
  const std::vector<JobFile*> files = open_everywhere();
  for (std::uint32_t at = 0; at < 3; ++at) ASSERT_EQ(files[0]->write(at << 20, "x", 1), 1);
  for (const std::size_t node : {1, 2, 0}) {
    struct stat status {};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    jobs_[node]->write_back(&status);
    EXPECT_EQ(status.st_size, (2 << 20) + 1) << "at node " << node;
  }
  EXPECT_EQ(release(files), 0);
}

TEST_P(NodesTest, AFileThatLosesItsNameOrGetsAnotherIsLeftToItself) {
  join_all();
  const std::vector<JobFile*> files = open_everywhere();
  const std::string data(4 << 20, 'u');
  ASSERT_EQ(files[0]->write(0, data.data(), data.size()), 4 << 20);
  const std::string moved = path_ + ".moved";
  jobs_[0]->step_aside(path_.c_str());
  fs::rename(path_, moved);
  EXPECT_EQ(files[1]->write(5, "moved", 5), 5);
  EXPECT_EQ(fs::file_size(moved), data.size());
  // Opened anew at a node that knows it by its old name.
  const int fd = ::open(moved.c_str(), O_RDWR | O_CLOEXEC);
  JobFile* again = jobs_[2]->acquire(fd, moved, settings_.file);
  ::close(fd);
  ASSERT_NE(again, nullptr);
  char got[6] = {};
  EXPECT_EQ(again->read(5, got, 5), 5);
  EXPECT_STREQ(got, "moved");
  EXPECT_EQ(jobs_[2]->release(again), 0);
  fs::remove(moved);
  std::string rest(data.size() - 10, 'x');
  EXPECT_EQ(files[2]->read(10, rest.data(), rest.size()), static_cast<ssize_t>(rest.size()));
  EXPECT_EQ(rest == data.substr(10), true);
  EXPECT_EQ(release(files), 0);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_P(NodesTest, HostileBytesEndTheirConnectionAndNothingElse) {
  join_all();
  const std::vector<JobFile*> files = open_everywhere();
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const int fd = stranger(local_address(settings_, 0));
    Hello hello{};
    std::memcpy(hello.magic, kWireMagic, sizeof kWireMagic);
    hello.version = kWireVersion;
    hello.caller = kProcess;
    std::string said(reinterpret_cast<const char*>(&hello), sizeof hello);
    // On a unix socket the secret is empty and the user is known: the proof is open to us, and what
    // comes after it is any bytes, or a request with some changed.
    Welcome welcome{};
    if (i % 3 != 0) {
      ASSERT_EQ(send(fd, said.data(), said.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(said.size()));
      ASSERT_EQ(recv(fd, &welcome, sizeof welcome, MSG_WAITALL),
                static_cast<ssize_t>(sizeof welcome));
      const Digest proof = client_proof({}, hello.nonce, welcome.nonce);
      said.assign(reinterpret_cast<const char*>(proof.data()), proof.size());
      for (int k = 0; k < 20; ++k) {
        Request request{};
        request.magic = kRequestMagic;
        request.operation = static_cast<Operation>(random() % 17);
        request.file = static_cast<std::uint32_t>(random() % 3);
        request.offset = random() % 3 == 0 ? random() : random() % (8 << 20);
        request.length = random() % 5000;
        request.node = random() % 9 == 0 ? static_cast<std::uint32_t>(random() % 4) : 0;
        request.payload =
            request.operation == Operation::write ? static_cast<std::uint32_t>(random() % 5000) : 0;
        if (request.operation == Operation::open) {
          OpenRequest open;
          open.inode = random() % 2 == 0 ? files[0]->entry().inode : random();
          open.access = kReads;
          open.path = random() % 2 == 0 ? path_ : "/nowhere/" + std::to_string(random());
          const auto payload = open_payload(open);
          request.payload = static_cast<std::uint32_t>(payload.size());
          said.append(reinterpret_cast<const char*>(&request), sizeof request);
          said.append(reinterpret_cast<const char*>(payload.data()), payload.size());
          continue;
        }
        said.append(reinterpret_cast<const char*>(&request), sizeof request);
        said.append(request.operation == Operation::write ? request.payload : 0, 'h');
        if (random() % 4 == 0) said[random() % said.size()] = static_cast<char>(random());
      }
    } else {
      for (char& c : said) c = random() % 8 == 0 ? static_cast<char>(random()) : c;
      said.append(random() % 3000, static_cast<char>(random()));
    }
    send(fd, said.data(), said.size(), MSG_NOSIGNAL);
    ::close(fd);
  }
  // The file may hold what a peer of the same user wrote; the manager must serve on.
  const std::string data(3 << 20, 'g');
  ASSERT_EQ(files[1]->write(0, data.data(), data.size()), 3 << 20);
  std::string got(data.size(), 'x');
  ASSERT_EQ(files[2]->read(0, got.data(), got.size()), 3 << 20);
  EXPECT_EQ(got == data, true);
  release(files);
}

TEST_P(NodesTest, AnotherUserOfTheNodeIsNotServed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  join_all();
  // By his user alone: not even folders and socket stand in his way.
  const std::string manager = local_address(settings_, 0);
  for (fs::path at = manager.substr(5); at != root_; at = at.parent_path()) {
    fs::permissions(at, fs::perms::all);
  }
  fs::permissions(root_, fs::perms::all);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    const int fd = stranger(manager);
    Hello hello{};
    std::memcpy(hello.magic, kWireMagic, sizeof kWireMagic);
    hello.version = kWireVersion;
    hello.caller = kProcess;
    send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
    char byte = 0;
    _exit(HasFailure() || recv(fd, &byte, 1, 0) > 0 ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(NodesTest, AManagerIsNotBoundToTheProcessorsOfTheRankThatStartedIt) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "there is one processor";
  cpu_set_t one;
  CPU_ZERO(&one);
  for (unsigned cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  join_all();
  const std::vector<JobFile*> files = open_everywhere();
  const std::string data(4 << 20, 'x');
  ASSERT_EQ(files[0]->write(0, data.data(), data.size()), 4 << 20);
  EXPECT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  std::ifstream lock(store_folder(settings_, 1) + "/manager.lock");
  pid_t manager = 0;
  ASSERT_TRUE(lock >> manager);
  cpu_set_t its;
  ASSERT_EQ(sched_getaffinity(manager, sizeof its, &its), 0);
  EXPECT_TRUE(CPU_EQUAL(&its, &all));
  EXPECT_EQ(release(files), 0);
}

TEST_P(NodesTest, WhoDoesNotKnowTheSecretIsNotServed) {
  settings_.rendezvous = root_ + "/meet";
  settings_.address = "127.0.0.1";
  fs::create_directory(settings_.rendezvous);
  join_all();
  std::string why;
  const std::string address = published_address(settings_, 1);
  const std::unique_ptr<Channel> channel = connect_to(address, {}, why);
  ASSERT_NE(channel, nullptr) << why;
  Hello hello{};
  std::memcpy(hello.magic, kWireMagic, sizeof kWireMagic);
  hello.version = kWireVersion;
  hello.caller = kProcess;
  hello.node = 1;
  iovec out{&hello, sizeof hello};
  ASSERT_EQ(send_all(*channel, &out, 1), 0);
  Welcome welcome{};
  ASSERT_EQ(receive_all(*channel, &welcome, sizeof welcome), 0);
  Digest wrong = client_proof({}, hello.nonce, welcome.nonce);
  out = {wrong.data(), wrong.size()};
  ASSERT_EQ(send_all(*channel, &out, 1), 0);
  char byte = 0;
  EXPECT_EQ(receive_all(*channel, &byte, 1), ECONNRESET);
  struct stat status {};
  ASSERT_EQ(stat((rendezvous_folder(settings_) + "/secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

// A core in this folder, as the kernel names one if nobody has told it otherwise.
std::string core_in(const std::string& folder) {
  std::string found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("core")) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    found.append(std::istreambuf_iterator<char>(file), {});
  }
  return found;
}

TEST_P(NodesTest, NoCoreDumpHoldsTheSecret) {
  settings_.rendezvous = root_ + "/meet";
  settings_.address = "127.0.0.1";
  fs::create_directory(settings_.rendezvous);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_CORE, &before), 0);
  const rlimit any{before.rlim_max, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_CORE, &any), 0);
  const std::string at_root = core_in("/");
  join_all();
  setrlimit(RLIMIT_CORE, &before);
  release(open_everywhere());  // by which all are connected
  // The job's own process may leave one, but the secret is not in its memory any more.
  const std::string cores = root_ + "/cores";
  fs::create_directory(cores);
  const pid_t child = fork();
  if (child == 0) {
    setrlimit(RLIMIT_CORE, &any);
    if (chdir(cores.c_str()) != 0) _exit(2);
    abort();
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const std::string core = core_in(cores);
  if (!WCOREDUMP(status) || core.empty()) GTEST_SKIP() << "the kernel puts cores elsewhere";
  std::ifstream file(rendezvous_folder(settings_) + "/secret");
  const std::string digits(std::istreambuf_iterator<char>(file), {});
  ASSERT_EQ(digits.size(), 64U);
  std::string raw;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    raw += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  std::string padded = raw;
  for (char& byte : padded) byte ^= 0x36;
  // What an HMAC makes of it is as good; and who frees memory writes over the begin of it alone.
  for (const std::string& form : {digits, raw, padded}) {
    for (std::size_t at = 0; at < form.size(); at += 8) {
      EXPECT_EQ(core.find(form.substr(at, 8)), std::string::npos) << "from byte " << at << " on";
    }
  }
  EXPECT_NE(core.find(settings_.rendezvous), std::string::npos) << "the core is of this program";
  // Its manager holds the secret as long as it lives, and leaves no core. It works in /.
  std::ifstream lock(store_folder(settings_, 1) + "/manager.lock");
  pid_t manager = 0;
  ASSERT_TRUE(lock >> manager);
  ASSERT_EQ(kill(manager, SIGABRT), 0);
  while (kill(manager, 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(core_in("/"), at_root);
  jobs_.clear();
  fs::remove_all(store_folder(settings_, 1));
}

TEST(Placement, BelievesWhoSaysThatThereIsOneNode) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_NODES"}) {
    unsetenv(name);
  }
  setenv("PMI_RANK", "0", 1);
  Settings settings;
  std::string why;
  EXPECT_FALSE(place_process(settings, why));
  EXPECT_NE(why.find("NVIO_ONE_NODE"), std::string::npos) << why;
  settings.one_node = true;
  EXPECT_TRUE(place_process(settings, why)) << why;
  EXPECT_EQ(settings.nodes, 1U);
  unsetenv("PMI_RANK");
}

// As the first process of a container, started by a rank of a launcher outside.
TEST(Placement, StaysOutWhereEachRankIsInAContainerOfItsOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make one";
  const pid_t rank = fork();
  if (rank == 0) {
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "2", 1);
    setenv("MPI_LOCALNRANKS", "2", 1);
    Settings settings;
    std::string why;
    if (unshare(CLONE_NEWPID) != 0 || !place_process(settings, why)) _exit(2);
    settings.nodes = 0;
    const pid_t inside = fork();
    if (inside == 0) _exit(place_process(settings, why) ? 3 : 0);
    int status = 0;
    waitpid(inside, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Placement, SaysWhatSeveralNodesNeed) {
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  Settings settings;
  std::string why;
  EXPECT_FALSE(place_process(settings, why));
  EXPECT_NE(why.find("NVIO_RENDEZVOUS is not set"), std::string::npos) << why;
  settings.rendezvous = "/meet";
  EXPECT_FALSE(place_process(settings, why));
  EXPECT_NE(why.find("NVIO_NODES and NVIO_NODE are not set"), std::string::npos) << why;
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
}

TEST(Placement, KeepsEachStripeAtOneNode) {
  for (std::uint64_t stripe = 64 << 10; stripe <= 9 << 20; stripe += 64 << 10) {
    const std::uint64_t unit = unit_of(stripe);
    if (unit == 64) continue;  // more would leave nothing for the other nodes
    for (std::uint32_t nodes = 2; nodes < 5; ++nodes) {
      for (const std::uint64_t part : {std::uint64_t{0}, equal_part(100 << 20, unit, nodes)}) {
        for (std::uint64_t at = 0; at < 120 << 20; at += stripe) {
          const std::uint32_t first = owner_of(at / kGroupSize, {part, unit}, nodes);
          const std::uint32_t last = owner_of((at + stripe - 1) / kGroupSize, {part, unit}, nodes);
          ASSERT_EQ(first, last) << "stripe " << stripe << " at " << at << ", part " << part;
        }
      }
    }
  }
  EXPECT_EQ(unit_of(0), 1U) << "not known";
  EXPECT_EQ(unit_of(4 << 20), 4U);
  EXPECT_EQ(unit_of(3 << 19), 3U);
  EXPECT_EQ(unit_of(4096 + 1), 64U) << "no more than fits";
}

TEST(Placement, OwnsEachGroupOnceAndByOffsetAlone) {
  for (std::uint32_t nodes = 1; nodes < 6; ++nodes) {
    const Shares parts{equal_part(10 << 20, 1, nodes), 1};
    std::vector<std::uint64_t> striped(nodes);
    std::uint32_t last = 0;
    for (std::uint64_t group = 0; group < 10; ++group) {
      ++striped[owner_of(group, Shares{0, 1}, nodes)];
      const std::uint32_t owner = owner_of(group, parts, nodes);
      EXPECT_GE(owner, last);
      EXPECT_LT(owner, nodes);
      last = owner;
    }
    for (const std::uint64_t count : striped) EXPECT_GE(count, 10 / nodes);
    EXPECT_EQ(owner_of(1000, parts, nodes), nodes - 1)
        << "what the file grows by is the last one's";
  }
  EXPECT_EQ(equal_part(0, 3, 4), 0U) << "a file created anew is striped";
}

}  // namespace
}  // namespace nvio
