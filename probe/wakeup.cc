// Waking who sleeps: another thread, or another process.
//
// On one processor the two wake each other in turn; each wake-up is a write, the partner's
// blocking read, and the switch between. From idle, the sleeper has a processor of its own that
// has had time to fall asleep; a wake-up lasts from before the write until the sleeper runs.
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>

#include "costs.h"
#include "measurement.h"

namespace tare::probe {
namespace {

struct Options {
  Extent extent{.batches = 20, .operations = 2'000};
  std::string kind = "thread";
  std::string via = "eventfd";
  bool from_idle = false;
  int64_t idle_ns = 1'000'000;
};

// One direction of waking. Lives in memory that both processes share.
class Bell {
 public:
  virtual ~Bell() = default;
  virtual void Ring() = 0;
  virtual void Await() = 0;
};

class EventBell final : public Bell {
 public:
  EventBell() : fd_(eventfd(0, 0)) {
    if (fd_ < 0) ThrowErrno("cannot make an eventfd");
  }
  void Ring() override { eventfd_write(fd_, 1); }
  void Await() override {
    eventfd_t value = 0;
    eventfd_read(fd_, &value);
  }

 private:
  const int fd_;
};

class PipeBell final : public Bell {
 public:
  PipeBell() {
    if (pipe(ends_) != 0) ThrowErrno("cannot make a pipe");
  }
  void Ring() override {
    if (write(ends_[1], "!", 1) != 1) ThrowErrno("cannot write to a pipe");
  }
  void Await() override {
    char byte = 0;
    if (read(ends_[0], &byte, 1) != 1) ThrowErrno("cannot read from a pipe");
  }

 private:
  int ends_[2] = {-1, -1};
};

class FutexBell final : public Bell {
 public:
  void Ring() override {
    word_.store(1, std::memory_order_release);
    syscall(SYS_futex, &word_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  void Await() override {
    while (word_.exchange(0, std::memory_order_acquire) == 0) {
      syscall(SYS_futex, &word_, FUTEX_WAIT, 0, nullptr, nullptr, 0);
    }
  }

 private:
  std::atomic<uint32_t> word_ = 0;
};

// All that the two sides share, in memory that survives a fork as one.
struct Shared {
  alignas(64) std::byte places[2][64];
  std::atomic<int64_t> woken_ns = 0;
  std::atomic<bool> stop = false;
};

Bell* MakeBell(const std::string& via, std::byte* place) {
  static_assert(sizeof(EventBell) <= 64 && sizeof(PipeBell) <= 64 && sizeof(FutexBell) <= 64);
  if (via == "eventfd") return new (place) EventBell();
  if (via == "pipe") return new (place) PipeBell();
  return new (place) FutexBell();
}

// The partner, in a thread or process of its own, until told to stop.
class Partner {
 public:
  template <typename Life>
  Partner(const std::string& kind, Life&& life) {
    if (kind == "thread") {
      thread_ = std::thread(life);
      return;
    }
    pid_ = fork();
    if (pid_ < 0) ThrowErrno("cannot fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      life();
      _exit(0);
    }
  }
  ~Partner() {
    if (thread_.joinable()) thread_.join();
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;

 private:
  std::thread thread_;
  pid_t pid_ = -1;
};

void Sleep(int64_t duration_ns) {
  const timespec duration = {.tv_sec = duration_ns / 1'000'000'000,
                             .tv_nsec = duration_ns % 1'000'000'000};
  nanosleep(&duration, nullptr);
}

std::vector<double> MeasureOnOneProcessor(const Options& options, Shared& shared, Bell& there,
                                          Bell& back) {
  PinTo(AllowedCpus().front());  // the partner inherits it
  const Partner partner(options.kind, [&] {
    while (true) {
      there.Await();
      if (shared.stop) return;
      back.Ring();
    }
  });
  // Two wake-ups make a round, and the extent counts wake-ups.
  Extent rounds = options.extent;
  rounds.operations = (options.extent.operations + 1) / 2;
  std::vector<double> batches = MeasureBatches(rounds, [&] {
    there.Ring();
    back.Await();
  });
  for (double& mean : batches) mean /= 2;
  shared.stop = true;
  there.Ring();
  return batches;
}

std::vector<double> MeasureFromIdle(const Options& options, Shared& shared, Bell& there,
                                    Bell& back) {
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.size() < 2) {
    throw std::runtime_error(
        "--from-idle needs two processors, one of them for the sleeper; this process may run on "
        "one only");
  }
  const Partner partner(options.kind, [&] {
    PinTo(cpus[1]);
    while (true) {
      there.Await();
      shared.woken_ns = Now();
      if (shared.stop) return;
      back.Ring();
    }
  });
  PinTo(cpus[0]);
  std::vector<double> batches;
  for (uint32_t batch = 0; batch <= options.extent.batches; ++batch) {
    int64_t total = 0;
    for (uint64_t i = 0; i < options.extent.operations; ++i) {
      Sleep(options.idle_ns);
      const int64_t start = Now();
      there.Ring();
      back.Await();
      total += shared.woken_ns - start;
    }
    if (batch > 0) {
      batches.push_back(static_cast<double>(total) /
                        static_cast<double>(options.extent.operations));
    }
  }
  shared.stop = true;
  there.Ring();
  return batches;
}

void Run(const Options& options) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) ThrowErrno("cannot map shared memory");
  Shared& shared = *new (memory) Shared;
  Bell& there = *MakeBell(options.via, shared.places[0]);
  Bell& back = *MakeBell(options.via, shared.places[1]);
  const std::vector<double> batches = options.from_idle
                                          ? MeasureFromIdle(options, shared, there, back)
                                          : MeasureOnOneProcessor(options, shared, there, back);
  Members details = {
      {"kind", options.kind}, {"via", options.via}, {"from_idle", options.from_idle}};
  if (options.from_idle) details.emplace_back("idle_ns", options.idle_ns);
  PrintCost("wakeup",
            options.from_idle ? "wake-up of a sleeper on an idle processor"
                              : "wake-up and switch on one processor",
            options.extent, batches, details);
}

}  // namespace

void AddWakeup(Command costs) {
  static Options options;
  const Command command = costs.Add("wakeup", "Waking a sleeping thread or process.");
  AddExtent(command, options.extent);
  command.Add("--kind", options.kind, "who is woken", "thread|process (default thread)")
      .OneOf({"thread", "process"});
  command
      .Add("--via", options.via, "what the sleeper waits for",
           "eventfd|futex|pipe (default eventfd)")
      .OneOf({"eventfd", "futex", "pipe"});
  command.AddFlag("--from-idle", options.from_idle, "the sleeper has an idle processor of its own");
  command
      .Add("--idle-ns", options.idle_ns, "how long that processor may fall asleep",
           "N (default 1000000)")
      .Within(1, INT64_MAX);
  command.Do([command] {
    // Each of these sleeps first; the default of the others would take a minute.
    constexpr uint64_t kOperationsFromIdle = 100;
    if (options.from_idle && !command.Has("--operations")) {
      options.extent.operations = kOperationsFromIdle;
    }
    Run(options);
  });
}

}  // namespace tare::probe
