// Clients as processes of their own that measure in rounds, all at once: what a round found comes
// back through shared memory.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace nvio::bench {

// Memory that processes share which are started later, of zeros at first, and a barrier for them
// and this one. Who waits there sleeps.
class SharedMemory {
 public:
  SharedMemory(std::size_t bytes, unsigned processes);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();
  void wait() { pthread_barrier_wait(static_cast<pthread_barrier_t*>(memory_)); }
  void* data() const;

 private:
  std::size_t bytes_;
  void* memory_;
};

// Starts so many processes, which end with this one; each calls `act` with its number. Where that
// throws, all end, and this one, too: the others may wait for it.
std::vector<pid_t> start_processes(unsigned count, const std::function<void(unsigned)>& act);
// Waits for their ends; whether all were good.
bool wait_for(const std::vector<pid_t>& processes);

// One client's work in a round: fills in the seconds that each of its operations took.
using Round = std::function<void(std::vector<float>& seconds)>;
// Runs in the client's process: prepares, and returns the ways to spend a round.
using Client = std::function<std::vector<Round>(unsigned client)>;

// Latencies of all clients together, in seconds, of one way in one round.
struct Measured {
  unsigned way = 0;
  std::vector<float> seconds;
};

// Starts the clients; then, `rounds` times, has all of them spend a round in each way, in an order
// that is turned round each time. Throws std::runtime_error when a client failed. While they are
// all ready and idle `idle` is called once.
std::vector<Measured> measure(unsigned clients, unsigned ways, unsigned rounds, unsigned operations,
                              const Client& client, const std::function<void()>& idle = {});

// The value that a share of `values` lies below; sorts them.
double quantile(std::vector<float>& values, double share);

struct Interval {
  double low, middle, high;
};
// The median with its interval by order statistics, 95 % or what so few values allow.
Interval median_interval(std::vector<double> values);

double now();  // seconds, monotonic

}  // namespace nvio::bench
