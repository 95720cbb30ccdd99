// Queued writes, of a process and of a manager: what is seen of them when, what comes behind them,
// and what becomes of them where a process or a manager is killed.
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <optional>
#include <random>
#include <semaphore>
#include <thread>

#include "../nodes/rendezvous.h"
#include "../nodes/write_queue.h"
#include "../settings/launcher.h"
#include "../system/real.h"
#include "jobs_fixture.h"

namespace nvio {
namespace {

class QueuedTest : public JobsTest {
 protected:
  using Later = ssize_t (JobFile::*)(std::uint64_t, const void*, std::size_t);
  // Queued writes of one node: seen by their process at once, by others after its sync.
  void queue_writes(Later later) {
    fs::remove(path_);
    const std::vector<JobFile*> files = open_everywhere();
    std::mt19937_64 random(5);
    std::string model;
    for (int step = 0; step < 1500; ++step) {
      const std::uint64_t offset = random() % (6 << 20);
      const std::size_t length = 1 + random() % 20000;
      if (random() % 3 != 0) {
        const std::string data(length, static_cast<char>(random()));
        if (model.size() < offset + length) model.resize(offset + length);
        model.replace(offset, length, data);
        ASSERT_EQ((files[1]->*later)(offset, data.data(), length), static_cast<ssize_t>(length));
      } else if (random() % 20 != 0) {
        std::string got(length, 'x');
        const std::string want = offset < model.size() ? model.substr(offset, length) : "";
        const std::uint64_t size = step % 2 == 0 ? files[1]->size() : model.size();
        ASSERT_EQ(size, model.size());
        const ssize_t done = files[1]->read(offset, got.data(), std::min(length, want.size()));
        ASSERT_EQ(done, static_cast<ssize_t>(want.size()));
        ASSERT_EQ(got.compare(0, want.size(), want), 0) << step;
      } else {
        ASSERT_EQ(files[1]->sync(), 0);
        std::string got(model.size(), 'x');
        ASSERT_EQ(files[2]->read(0, got.data(), got.size()), static_cast<ssize_t>(model.size()));
        ASSERT_EQ(got == model, true) << step;
      }
    }
    ASSERT_EQ(release(files), 0);
    EXPECT_EQ(file_content() == model, true);
  }

  // Of a node; nothing where it has gone, its store too.
  std::optional<pid_t> manager(std::uint32_t node) const {
    std::ifstream lock(store_folder(settings_, node) + "/manager.lock");
    pid_t found = 0;
    if (lock >> found && kill(found, 0) == 0) return found;
    return std::nullopt;
  }

  // What a killed process or manager leaves for a recovery, once all managers have ended.
  void remove_stores() const {
    for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
      while (manager(node)) std::this_thread::yield();
    }
    for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
      fs::remove_all(store_folder(settings_, node));
    }
  }

  // Every node's file, of whose begin node 1 has handed over 3 MiB by short pieces: the managers
  // have taken them and, on so slow a store, done few.
  std::vector<JobFile*> open_and_hand_over(char value) {
    settings_.kind = StoreKind::simulated;
    settings_.simulated.access_ns = 500'000;
    join_all();
    std::vector<JobFile*> files = open_everywhere();
    constexpr ssize_t kPiece = 32 << 10;
    const std::string data(kPiece, value);
    for (std::uint64_t at = 0; at < 3 << 20; at += kPiece) {
      EXPECT_EQ(files[1]->hand_over(at, data.data(), kPiece), kPiece);
    }
    return files;
  }
};

INSTANTIATE_TEST_SUITE_P(All, QueuedTest,
                         testing::Values(Connections::direct, Connections::relayed),
                         [](const auto& one) {
                           return one.param == Connections::direct ? "direct" : "relayed";
                         });

TEST_P(QueuedTest, QueuedWritesAreSeenByTheirProcessAtOnceAndByOthersAfterItsSync) {
  join_all();
  queue_writes(&JobFile::write_later);
  queue_writes(&JobFile::hand_over);
}

// Where a process may have no more threads nothing is queued. Root may have any number.
TEST_P(QueuedTest, WhoCanHaveNoThreadWritesAtOnce) {
  settings_.nodes = 1;
  const pid_t child = fork();
  if (child == 0) {
    join_all();
    const std::vector<JobFile*> files = open_everywhere();
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || (geteuid() == 0 && setuid(65534) != 0)) _exit(2);
    if (files[0]->write_later(0, "now", 3) != 3) _exit(3);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    if (sigismember(&blocked, SIGUSR1) != 0) _exit(4);
    _exit(files[0]->cached().write_back() == 0 ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(file_content(), "now");
  remove_stores();
}

// As SIGTERM asks for, by which the process ends then: what it was told is written is in the file,
// whatever is slow.
TEST_P(QueuedTest, WhoEndsBySigtermHasWrittenWhatIsQueued) {
  settings_.nodes = 1;
  settings_.kind = StoreKind::simulated;
  settings_.simulated.access_ns = 300'000;
  constexpr std::uint64_t kPieces = 2000;
  const std::string piece(100, 'q');
  const pid_t child = fork();
  if (child == 0) {
    RealPosix slow = real();
    slow.fsync = [](int) { return 0; };
    slow.pwrite = [](int fd, const void* data, std::size_t length, off_t offset) {
      constexpr useconds_t kLatency = 1000;
      usleep(kLatency);
      return ::pwrite(fd, data, length, offset);
    };
    set_real(&slow);
    join_all();
    JobFile* file = open_everywhere()[0];
    for (std::uint64_t i = 0; i < kPieces; ++i) {
      file->write_later(i * piece.size(), piece.data(), piece.size());
    }
    jobs_[0]->flush_for_good();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(file_content(), std::string(kPieces * piece.size(), 'q'));
}

// A file that was left keeps its queue, and nobody looks for it in the cache.
TEST_P(QueuedTest, WhoComesByTheNameOfAFileThatWasLeftFindsWhatIsQueued) {
  settings_.nodes = 1;
  join_all();
  const std::vector<JobFile*> files = open_everywhere();
  ASSERT_EQ(files[0]->step_aside(), 0);
  constexpr ssize_t kLength = 8 << 20;
  const auto write = [&](char value) {
    ASSERT_EQ(files[0]->truncate(0), 0);
    const std::string data(kLength, value);
    ASSERT_EQ(files[0]->write_later(0, data.data(), kLength), kLength);
  };
  const auto status = [&] {
    struct stat found {};
    EXPECT_EQ(::stat(path_.c_str(), &found), 0);
    return found;
  };
  for (char value = 'a'; value < 'a' + 20; ++value) {
    write(value);
    ASSERT_EQ(jobs_[0]->step_aside(path_.c_str()), 0);
    EXPECT_EQ(file_content() == std::string(kLength, value), true);
    write(value);
    struct stat sized = status();
    jobs_[0]->correct_size(&sized);
    EXPECT_EQ(sized.st_size, kLength);
    write(value);
    struct stat written = status();
    jobs_[0]->write_back(&written);
    EXPECT_EQ(written.st_size, kLength);
  }
  ASSERT_EQ(release(files), 0);
}

TEST_P(QueuedTest, WritesThatManagersQueueAreSeenSoWithAdmissionLeftToNvio) {
  settings_.file.admit = Admit::automatic;
  join_all();
  queue_writes(&JobFile::hand_over);
}

TEST_P(QueuedTest, ATruncationComesBehindWhatManagersHaveTaken) {
  const std::vector<JobFile*> files = open_and_hand_over('t');
  EXPECT_EQ(files[1]->size(), 3U << 20);
  ASSERT_EQ(files[1]->truncate(100), 0);
  EXPECT_EQ(files[1]->size(), 100U);
  ASSERT_EQ(release(files), 0);
  EXPECT_EQ(file_content(), std::string(100, 't'));
}

// One node leads all others out of the cache while their managers still have writes to do.
TEST_P(QueuedTest, WhatIsWrittenPlainlyComesAfterWhatManagersHaveTaken) {
  const std::vector<JobFile*> files = open_and_hand_over('o');
  ASSERT_EQ(files[0]->step_aside(), 0);
  const std::string data(3 << 20, 'n');
  ASSERT_EQ(files[1]->write(0, data.data(), data.size()), 3 << 20);
  std::string got(data.size(), 'x');
  ASSERT_EQ(files[1]->read(0, got.data(), got.size()), 3 << 20);
  EXPECT_EQ(got == data, true);
  ASSERT_EQ(files[1]->sync(), 0);
  EXPECT_EQ(file_content() == data, true);
  EXPECT_EQ(release(files), 0);
}

TEST_P(QueuedTest, WhoStepsAsideHasFirstDoneWhatItHandedOver) {
  const std::vector<JobFile*> files = open_and_hand_over('a');
  ASSERT_EQ(files[1]->step_aside(), 0);
  EXPECT_EQ(file_content() == std::string(3 << 20, 'a'), true);
  EXPECT_EQ(release(files), 0);
}

TEST_P(QueuedTest, AProcessThatIsKilledLosesNothingThatAManagerHasTaken) {
  const pid_t child = fork();
  if (child == 0) {
    open_and_hand_over('k');
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && !HasFailure());
  remove_stores();
  EXPECT_EQ(file_content() == std::string(3 << 20, 'k'), true);
}

TEST_P(QueuedTest, ThatAManagerIsLostWithWhatItHasTakenTellsTheSync) {
  const std::vector<JobFile*> files = open_and_hand_over('l');
  ASSERT_EQ(kill(manager(1).value(), SIGKILL), 0);
  EXPECT_EQ(files[1]->sync(), EIO) << "its own bytes, too: they were handed over";
  EXPECT_EQ(files[1]->write_back(), EIO) << "as its close does";
  release(files);
  jobs_.clear();
  remove_stores();
}

TEST_P(QueuedTest, AReaderThatIsClosedLeavesWhatWentWrongToTheSync) {
  const std::vector<JobFile*> files = open_and_hand_over('r');
  ASSERT_EQ(kill(manager(1).value(), SIGKILL), 0);
  EXPECT_EQ(files[1]->write_back_of_reader(), 0);
  EXPECT_EQ(files[1]->sync(), EIO);
  release(files);
  jobs_.clear();
  remove_stores();
}

// A sync on a thread of its own.
class Sync {
 public:
  explicit Sync(JobFile& file)
      : thread_([this, &file] {
          id_ = gettid();
          told_ = file.sync();
        }) {}
  ~Sync() { told(); }
  Sync(const Sync&) = delete;
  Sync& operator=(const Sync&) = delete;
  // Returns once it waits for something, or is over.
  void await() const {
    std::string text;
    do {
      std::this_thread::yield();
    } while (id_ == 0 || (read_text("/proc/self/task/" + std::to_string(id_) + "/stat", text) &&
                          text[text.rfind(')') + 2] != 'S'));
  }
  int told() {
    if (thread_.joinable()) thread_.join();
    return told_;
  }

 private:
  std::atomic<pid_t> id_{0};
  int told_ = 0;
  std::thread thread_;
};

TEST_P(QueuedTest, ASyncIsNotOverBeforeAnotherThreadsThatHasBegunIs) {
  join_all();
  const std::vector<JobFile*> files = open_everywhere();
  const std::string data(3 << 20, 's');
  ASSERT_EQ(files[1]->write(0, data.data(), data.size()), 3 << 20);
  ASSERT_EQ(kill(manager(0).value(), SIGSTOP), 0);
  Sync first(*files[1]);
  first.await();
  Sync second(*files[1]);
  second.await();
  ASSERT_EQ(kill(manager(0).value(), SIGKILL), 0);
  EXPECT_EQ(first.told(), EIO);
  EXPECT_EQ(second.told(), EIO) << "what was written before it is lost";
  release(files);
  jobs_.clear();
  remove_stores();
}

QueuedWrite queued(std::uint64_t offset, std::size_t length, const void* file = nullptr,
                   std::uint64_t owner = 0) {
  return {.offset = offset, .data = std::vector<char>(length), .file = file, .owner = owner};
}

TEST(WriteQueue, TellsTheFirstErrorOnceAndKeepsTheOrder) {
  std::vector<std::uint64_t> order;
  WriteQueue queue(
      [&](const QueuedWrite& write) {
        order.push_back(write.offset);
        return write.offset == 3 ? ENOSPC : write.offset == 5 ? EIO : 0;
      },
      1000);
  for (std::uint64_t i = 0; i < 50; ++i) queue.add(queued(i, 10));
  EXPECT_EQ(queue.drain(), ENOSPC);
  EXPECT_EQ(queue.drain(), 0);
  EXPECT_FALSE(queue.overlaps(0, 1000));
  ASSERT_EQ(order.size(), 50U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// A queue whose thread waits, so that what is added stays there.
class HeldQueue {
 public:
  explicit HeldQueue(std::size_t most)
      : queue_(
            [this](const QueuedWrite& write) {
              let_.acquire();
              return write.owner == 7 ? ENOSPC : 0;
            },
            most) {}
  ~HeldQueue() { let(1000); }
  HeldQueue(const HeldQueue&) = delete;
  HeldQueue& operator=(const HeldQueue&) = delete;
  void let(std::ptrdiff_t writes) { let_.release(writes); }
  WriteQueue& operator*() { return queue_; }
  WriteQueue* operator->() { return &queue_; }

 private:
  std::counting_semaphore<> let_{0};
  WriteQueue queue_;
};

TEST(WriteQueue, IsBoundedAndCountsWhatShortWritesTakeBesideTheirBytes) {
  HeldQueue queue(8 * sizeof(QueuedWrite));
  EXPECT_TRUE(queue->try_add(queued(0, 16 * sizeof(QueuedWrite)))) << "alone it fits always";
  EXPECT_FALSE(queue->try_add(queued(0, 1)));
  queue.let(1);
  EXPECT_EQ(queue->drain(), 0);
  int taken = 0;
  while (taken < 100 && queue->try_add(queued(0, 1))) ++taken;
  EXPECT_EQ(taken, 7);
  std::thread waits([&] { queue->add(queued(5, 1)); });
  EXPECT_FALSE(queue->overlaps(5, 1));
  queue.let(1);
  waits.join();
  EXPECT_TRUE(queue->overlaps(5, 1));
}

TEST(WriteQueue, WaitsOnlyForWhatTouchesTheSameBytesAndTellsWhoseErrorItIs) {
  const int one = 0;
  const int two = 0;
  HeldQueue queue(1 << 20);
  queue->add(queued(0, 10, &one, 1));
  queue->add(queued(100, 10, &two, 7));
  queue->add(queued(200, 10, &two, 2));
  EXPECT_TRUE(queue->overlaps(9, 1, &one));
  EXPECT_FALSE(queue->overlaps(10, 90, &one));
  EXPECT_FALSE(queue->overlaps(9, 1, &two));
  queue->wait_for(10, 1000, &one);  // for nothing: or this hangs
  queue.let(1);
  queue->wait_for(0, 1000, &one);
  EXPECT_TRUE(queue->overlaps(100, 1, &two));
  queue.let(2);
  EXPECT_EQ(queue->drain(&two, 2), 0);
  EXPECT_EQ(queue->drain(&one, 7), 0);
  EXPECT_EQ(queue->drain(&two, 7), ENOSPC);
  EXPECT_EQ(queue->drain(&two, 7), 0);
}

}  // namespace
}  // namespace nvio
