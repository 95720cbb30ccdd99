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
  virtual void ring() = 0;
  virtual void await() = 0;
};

class EventBell final : public Bell {
 public:
  EventBell() : fd_(eventfd(0, 0)) {
    if (fd_ < 0) throw_errno("cannot make an eventfd");
  }
  void ring() override { eventfd_write(fd_, 1); }
  void await() override {
    eventfd_t value = 0;
    eventfd_read(fd_, &value);
  }

 private:
  const int fd_;
};

class PipeBell final : public Bell {
 public:
  PipeBell() {
    if (pipe(ends_) != 0) throw_errno("cannot make a pipe");
  }
  void ring() override {
    if (write(ends_[1], "!", 1) != 1) throw_errno("cannot write to a pipe");
  }
  void await() override {
    char byte = 0;
    if (read(ends_[0], &byte, 1) != 1) throw_errno("cannot read from a pipe");
  }

 private:
  int ends_[2] = {-1, -1};
};

class FutexBell final : public Bell {
 public:
  void ring() override {
    word_.store(1, std::memory_order_release);
    syscall(SYS_futex, &word_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  void await() override {
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

Bell* make_bell(const std::string& via, std::byte* place) {
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
    if (pid_ < 0) throw_errno("cannot fork");
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

void sleep_for(int64_t duration_ns) {
  const timespec duration = {.tv_sec = duration_ns / 1'000'000'000,
                             .tv_nsec = duration_ns % 1'000'000'000};
  nanosleep(&duration, nullptr);
}

std::vector<double> measure_on_one_processor(const Options& options, Shared& shared, Bell& there,
                                             Bell& back) {
  pin_to(allowed_cpus().front());  // the partner inherits it
  const Partner partner(options.kind, [&] {
    while (true) {
      there.await();
      if (shared.stop) return;
      back.ring();
    }
  });
  // Two wake-ups make a round, and the extent counts wake-ups.
  Extent rounds = options.extent;
  rounds.operations = (options.extent.operations + 1) / 2;
  std::vector<double> batches = measure_batches(rounds, [&] {
    there.ring();
    back.await();
  });
  for (double& mean : batches) mean /= 2;
  shared.stop = true;
  there.ring();
  return batches;
}

std::vector<double> measure_from_idle(const Options& options, Shared& shared, Bell& there,
                                      Bell& back) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) {
    throw std::runtime_error(
        "--from-idle needs two processors, one of them for the sleeper; this process may run on "
        "one only");
  }
  const Partner partner(options.kind, [&] {
    pin_to(cpus[1]);
    while (true) {
      there.await();
      shared.woken_ns = now_ns();
      if (shared.stop) return;
      back.ring();
    }
  });
  pin_to(cpus[0]);
  std::vector<double> batches;
  for (uint32_t batch = 0; batch <= options.extent.batches; ++batch) {
    int64_t total = 0;
    for (uint64_t i = 0; i < options.extent.operations; ++i) {
      sleep_for(options.idle_ns);
      const int64_t start = now_ns();
      there.ring();
      back.await();
      total += shared.woken_ns - start;
    }
    if (batch > 0) {
      batches.push_back(static_cast<double>(total) /
                        static_cast<double>(options.extent.operations));
    }
  }
  shared.stop = true;
  there.ring();
  return batches;
}

void run(const Options& options) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_errno("cannot map shared memory");
  Shared& shared = *new (memory) Shared;
  Bell& there = *make_bell(options.via, shared.places[0]);
  Bell& back = *make_bell(options.via, shared.places[1]);
  const std::vector<double> batches = options.from_idle
                                          ? measure_from_idle(options, shared, there, back)
                                          : measure_on_one_processor(options, shared, there, back);
  Members details = {
      {"kind", options.kind}, {"via", options.via}, {"from_idle", options.from_idle}};
  if (options.from_idle) details.emplace_back("idle_ns", options.idle_ns);
  print_cost("wakeup",
             options.from_idle ? "wake-up of a sleeper on an idle processor"
                               : "wake-up and switch on one processor",
             options.extent, batches, details);
}

}  // namespace

void add_wakeup(Command costs) {
  static Options options;
  const Command command = costs.add("wakeup", "Waking a sleeping thread or process.");
  add_extent(command, options.extent);
  command.add("--kind", options.kind, "who is woken", "thread|process (default thread)")
      .one_of({"thread", "process"});
  command
      .add("--via", options.via, "what the sleeper waits for",
           "eventfd|futex|pipe (default eventfd)")
      .one_of({"eventfd", "futex", "pipe"});
  command.add_flag("--from-idle", options.from_idle,
                   "the sleeper has an idle processor of its own");
  command
      .add("--idle-ns", options.idle_ns, "how long that processor may fall asleep",
           "N (default 1000000)")
      .within(1, INT64_MAX);
  command.calls([command] {
    // Each of these sleeps first; the default of the others would take a minute.
    constexpr uint64_t kOperationsFromIdle = 100;
    if (options.from_idle && !command.has("--operations")) {
      options.extent.operations = kOperationsFromIdle;
    }
    run(options);
  });
}

}  // namespace tare::probe
