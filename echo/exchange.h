// One requester's conversation with the server: sends by a plan, checks and stamps each reply.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "message.h"
#include "samples.h"
#include "transport.h"

namespace tare::echo {

/// What counts as the moment to send. Sleeping wakes tens of microseconds late but leaves the
/// processor to a server that shares it; spinning is punctual and starves such a server.
enum class Pace { kSleep, kSpin };

/// What one phase (warm-up or measurement) does.
struct Plan {
  Mode mode = Mode::kClosed;
  uint64_t requests = 0;       // at most this many; also bounded by the room for samples
  int64_t duration_ns = 0;     // send none that is due later after the start; 0: no limit
  double rate = 0;             // open: intended requests per second
  int64_t first_send_ns = 0;   // open: the first request's offset from the start
  Pace pace = Pace::kSleep;    // open
  uint32_t outstanding = 1;    // most requests without an answer at any time
  int64_t timeout_ns = 0;      // an unanswered request is lost after this
  uint32_t give_up_after = 0;  // this many losses in a row end the phase; 0: never
};

/// sent = received + lost, unless a phase was interrupted: then the rest is lost too.
struct Counters {
  uint64_t sent = 0;
  uint64_t received = 0;    // first correct reply, in time
  uint64_t lost = 0;        // no correct reply within the timeout
  uint64_t late = 0;        // replies to requests given up before, earlier phases included
  uint64_t duplicated = 0;  // further replies to an answered request
  uint64_t reordered = 0;   // received after the reply to a later request
  uint64_t corrupted = 0;   // unreadable, wrong length, wrong checksum, or never asked for
  uint64_t foreign = 0;     // for another requester on the same reply topic
  uint64_t refused = 0;     // sends that the system refused; these requests end up lost
};

enum class Ending { kRequests, kDuration, kInterrupted, kGaveUp };

struct PhaseResult {
  Counters counters;
  Ending ending = Ending::kRequests;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class Exchange final : public ReplySink {
 public:
  /// Borrows `client` (attaches itself), `payloads` and `stop`; all outlive it. `index` is
  /// written into the samples.
  Exchange(Client& client, uint32_t requester, uint32_t index, const PayloadSource& payloads,
           int64_t slice_ns, const std::atomic<bool>& stop);

  /// Asks until one answer has come: only then is everything between the two in place. False
  /// after `patience_ns`, or when stopped.
  bool probe(int64_t patience_ns);

  /// Runs one phase on the calling thread. `samples` has room for plan.requests; the first
  /// counters.sent of them are filled. Allocates nothing.
  PhaseResult run(const Plan& plan, std::span<Sample> samples);

  bool on_reply(const Message& reply, int64_t received_ns) override;
  void on_malformed() override;

 private:
  void run_closed();
  void run_open();
  bool over(int64_t due_ns) const;
  bool may_send(int64_t now_ns);
  void send_next(int64_t intended_ns);
  void transmit(uint32_t sequence);
  void expire_unanswered(int64_t now_ns);
  int64_t oldest_deadline();
  void account(Sample& sample, uint64_t index, int64_t received_ns);
  void end(Ending ending);
  bool finished();

  Client& client_;
  const uint32_t requester_;
  const uint32_t index_;
  const PayloadSource& payloads_;
  const int64_t slice_ns_;
  const std::atomic<bool>& stop_;

  // A listener's thread and ours both send: one at a time. Taken before mutex_.
  std::mutex send_mutex_;

  // Guards all below. Never held while sending, so that a reply can be taken meanwhile.
  std::mutex mutex_;
  Plan plan_;
  PhaseResult result_;
  std::span<Sample> samples_;
  uint32_t first_sequence_ = 0;  // sequence of samples_[0]; earlier phases used those before
  uint64_t oldest_ = 0;          // all samples before this one are settled
  uint64_t newest_answered_ = 0;
  uint64_t unanswered_ = 0;
  uint32_t losses_in_a_row_ = 0;
  bool sending_ = false;  // more requests are to come in this phase
  bool waiting_for_room_ = false;
  bool probe_answered_ = false;
};

}  // namespace tare::echo
