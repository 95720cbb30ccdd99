// A wire between two taps that holds every frame back by a fixed time and loses a share of them,
// for kernels without netem. Each direction has a thread, and a queue of bounded memory.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "costs.h"
#include "line.h"
#include "measurement.h"
#include "segments.h"
#include "service.h"

namespace tare::probe {
namespace {

struct Options {
  uint32_t near_tap = 0;
  uint32_t far_tap = 0;
  int64_t hold_ns = 0;
  double loss = 0;
  uint64_t seed = 0;
  uint64_t room = 0;
};

// Frames in the order in which they came, packed into memory that is there from the beginning.
class Queue {
 public:
  explicit Queue(std::size_t room) : memory_(room) {}

  struct Frame {
    std::size_t at;
    std::size_t size;
    int64_t due;
  };

  bool empty() const { return frames_.empty(); }
  const Frame& oldest() const { return frames_.front(); }
  std::span<const std::byte> bytes(const Frame& frame) const {
    return std::span(memory_).subspan(frame.at, frame.size);
  }
  std::size_t held() const { return held_; }

  /// Where the next frame may be written, kLargestFrame bytes of it; nothing if there is no room.
  std::span<std::byte> room() {
    if (empty()) {
      end_ = 0;
    } else {
      const std::size_t begin = oldest().at;
      if (end_ > begin && memory_.size() - end_ < kLargestFrame) end_ = 0;
      if (end_ <= begin && begin - end_ < kLargestFrame) return {};
    }
    return std::span(memory_).subspan(end_, kLargestFrame);
  }

  /// Keeps what has been written into room().
  void add(std::size_t size, int64_t due) {
    frames_.push_back({end_, size, due});
    end_ += size;
    held_ += size;
  }

  void drop_oldest() {
    held_ -= oldest().size;
    frames_.pop_front();
  }

 private:
  std::vector<std::byte> memory_;
  std::deque<Frame> frames_;
  std::size_t end_ = 0;
  std::size_t held_ = 0;
};

// How many segments pass until the next one is lost: each is with the same probability.
class Losses {
 public:
  Losses(double share, uint64_t seed) : share_(share), random_(seed) { draw(); }

  uint64_t left() const { return left_; }
  void pass(uint64_t segments) { left_ -= segments; }
  void draw() {
    left_ = share_ > 0
                ? static_cast<uint64_t>(std::geometric_distribution<int64_t>(share_)(random_))
                : std::numeric_limits<uint64_t>::max();
  }

 private:
  double share_;
  std::mt19937_64 random_;
  uint64_t left_ = 0;
};

// What one direction has done since it was last asked. Written by its thread, read by another.
struct Counters {
  std::atomic<uint64_t> frames = 0;
  std::atomic<uint64_t> bytes = 0;
  std::atomic<uint64_t> segments = 0;
  std::atomic<uint64_t> lost = 0;        // segments, on purpose
  std::atomic<uint64_t> overflowed = 0;  // frames for which the queue had no room
  std::atomic<uint64_t> refused = 0;     // frames that the far kernel did not take
  std::atomic<uint64_t> released = 0;
  std::atomic<uint64_t> late_ns = 0;  // behind the time they were due at, all of them
  std::atomic<uint64_t> latest_ns = 0;
  std::atomic<uint64_t> most_held = 0;

  nlohmann::json taken() {
    const uint64_t passed = released.exchange(0);
    const uint64_t late = late_ns.exchange(0);
    return {{"frames", frames.exchange(0)},
            {"bytes", bytes.exchange(0)},
            {"segments", segments.exchange(0)},
            {"lost_segments", lost.exchange(0)},
            {"overflowed_frames", overflowed.exchange(0)},
            {"refused_frames", refused.exchange(0)},
            {"late_mean_ns", passed ? late / passed : 0},
            {"late_most_ns", latest_ns.exchange(0)},
            {"held_most_bytes", most_held.exchange(0)}};
  }
};

void raise_to(std::atomic<uint64_t>& most, uint64_t value) {
  if (value > most.load(std::memory_order_relaxed)) most = value;
}

class Direction {
 public:
  Direction(int from, int to, const Options& options, uint64_t seed)
      : from_(from),
        to_(to),
        hold_ns_(options.hold_ns),
        queue_(options.room),
        losses_(options.loss, seed),
        whole_(kLargestFrame) {}

  [[noreturn]] void run() {
    while (true) {
      const bool took = take();
      const int64_t now = now_ns();
      while (!queue_.empty() && queue_.oldest().due <= now) release(now);
      if (!took) await(now);
    }
  }

  Counters& counters() { return counters_; }

 private:
  /// Reads one frame, if there is one.
  bool take() {
    std::span<std::byte> room = queue_.room();
    const bool full = room.empty();
    if (full) room = whole_;
    const ssize_t length = read(from_, room.data(), room.size());
    if (length < 0) {
      if (errno == EAGAIN || errno == EINTR) return false;
      throw_errno("cannot read from a tap");
    }
    const auto frame = room.first(static_cast<std::size_t>(length));
    const uint32_t segments = segments_in(frame);
    ++counters_.frames;
    counters_.bytes += frame.size() - kVnetHeader;
    counters_.segments += segments;
    if (full) {
      ++counters_.overflowed;
    } else if (segments <= losses_.left()) {
      losses_.pass(segments);
      hold(frame.size());
    } else {
      std::ranges::copy(frame, whole_.begin());
      hold_what_is_left(std::span(whole_).first(frame.size()), segments);
    }
    raise_to(counters_.most_held, queue_.held());
    return true;
  }

  /// A frame of which at least one segment is lost: those before and behind it go on.
  void hold_what_is_left(std::span<const std::byte> frame, uint32_t segments) {
    for (uint32_t first = 0; first < segments; ++first) {
      const auto passing =
          static_cast<uint32_t>(std::min<uint64_t>(losses_.left(), segments - first));
      if (passing > 0) {
        const std::span<std::byte> room = queue_.room();
        if (room.empty()) {
          ++counters_.overflowed;
        } else {
          hold(cut_out(frame, first, passing, room));
        }
        losses_.pass(passing);
        first += passing;
      }
      if (first < segments) {
        ++counters_.lost;
        losses_.draw();
      }
    }
  }

  void hold(std::size_t size) { queue_.add(size, now_ns() + hold_ns_); }

  void release(int64_t now) {
    const auto& oldest = queue_.oldest();
    const auto late = static_cast<uint64_t>(now - oldest.due);
    const auto bytes = queue_.bytes(oldest);
    if (write(to_, bytes.data(), bytes.size()) < 0) ++counters_.refused;
    queue_.drop_oldest();
    ++counters_.released;
    counters_.late_ns += late;
    raise_to(counters_.latest_ns, late);
  }

  void await(int64_t now) const {
    timespec left = {};
    const bool pending = !queue_.empty();
    if (pending) {
      const int64_t ns = queue_.oldest().due - now;
      left = {ns / 1'000'000'000, ns % 1'000'000'000};
    }
    pollfd readable = {from_, POLLIN, 0};
    if (ppoll(&readable, 1, pending ? &left : nullptr, nullptr) > 0 &&
        (readable.revents & (POLLERR | POLLNVAL)) != 0) {
      throw std::runtime_error("a tap is gone");
    }
  }

  int from_;
  int to_;
  int64_t hold_ns_;
  Queue queue_;
  Losses losses_;
  std::vector<std::byte> whole_;
  Counters counters_;
};

void prepare(int tap) {
  if (ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) {
    throw_errno("descriptor " + std::to_string(tap) + " is no tap with headers of virtio");
  }
  const int flags = fcntl(tap, F_GETFL);
  if (flags < 0 || fcntl(tap, F_SETFL, flags | O_NONBLOCK) != 0) throw_errno("cannot set up a tap");
}

// A wire with one direction would be worse than none: what fails in a thread ends the program.
void carry(Direction& direction) {
  try {
    direction.run();
  } catch (const std::exception& error) {
    std::cerr << "probe: " << error.what() << std::endl;
    std::_Exit(1);
  }
}

int64_t processor_time() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

void run(const Options& options) {
  const int near_tap = static_cast<int>(options.near_tap);
  const int far_tap = static_cast<int>(options.far_tap);
  for (const int tap : {near_tap, far_tap}) prepare(tap);
  prctl(PR_SET_TIMERSLACK, 1);  // where it does not run as SCHED_FIFO, whose timers have none
  Direction forth(near_tap, far_tap, options, 2 * options.seed);
  Direction back(far_tap, near_tap, options, 2 * options.seed + 1);
  std::thread(carry, std::ref(forth)).detach();
  std::thread(carry, std::ref(back)).detach();
  print_line({{"event", "ready"}, {"hold_ns", options.hold_ns}, {"room_bytes", options.room}});
  int64_t told_ns = processor_time();
  for (std::string line; std::getline(std::cin, line);) {
    const int64_t cpu_ns = processor_time();
    const nlohmann::json report = {{"event", "report"},
                                   {"cpu_ns", cpu_ns - std::exchange(told_ns, cpu_ns)},
                                   {"forth", forth.counters().taken()},
                                   {"back", back.counters().taken()}};
    std::cout << report.dump() << std::endl;
  }
  std::_Exit(0);  // the threads know no end; the taps go with the program
}

}  // namespace

void add_relay(Command costs) {
  static Options options;
  const Command command = costs.add(
      "relay",
      "A wire between two taps, open as descriptors with IFF_VNET_HDR: holds every frame back by "
      "a\n"
      "fixed time and loses a share of the segments. Reports what it did since it was last asked,\n"
      "at each line on its input; ends with the input.");
  command.add("--near", options.near_tap, "descriptor of one end's tap", "FD").required();
  command.add("--far", options.far_tap, "descriptor of the other's", "FD").required();
  command.add("--hold", options.hold_ns, "each way, half of a round trip", "NS")
      .within(0, 10'000'000'000);
  command.add("--loss", options.loss, "share of segments lost each way, below 1", "SHARE").share();
  command.add("--seed", options.seed, "of the losses", "N");
  command
      .add("--room", options.room, "memory of each way's queue; what it cannot hold is lost", "B")
      .required()
      .within(kLargestFrame, uint64_t{1} << 34);
  command.calls([] { run(options); });
}

}  // namespace tare::probe
