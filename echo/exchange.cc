#include "exchange.h"

#include <algorithm>
#include <limits>

#include "clock.h"

namespace tare::echo {
namespace {

// A request that is sent before a DDS has found its peer is lost, as the first one often is: asked
// again soon, then less often, since a slow guest has to answer all of them.
constexpr int64_t kFirstProbeInterval = 10'000'000;
constexpr int64_t kProbeInterval = 100'000'000;

}  // namespace

Exchange::Exchange(Client& client, uint32_t requester, uint32_t index,
                   const PayloadSource& payloads, int64_t slice_ns, const std::atomic<bool>& stop)
    : client_(client),
      requester_(requester),
      index_(index),
      payloads_(payloads),
      slice_ns_(slice_ns),
      stop_(stop) {
  client_.attach(*this);
}

bool Exchange::probe(int64_t patience_ns) {
  const int64_t give_up = now_ns() + patience_ns;
  int64_t next_probe = 0;
  int64_t interval = kFirstProbeInterval;
  while (!stop_ && now_ns() < give_up) {
    if (now_ns() >= next_probe) {
      const std::lock_guard sending(send_mutex_);
      transmit(kProbeSequence);
      next_probe = now_ns() + interval;
      interval = std::min(2 * interval, kProbeInterval);
    }
    client_.wait(std::max<int64_t>(0, std::min(slice_ns_, next_probe - now_ns())));
    const std::lock_guard lock(mutex_);
    if (probe_answered_) return true;
  }
  return false;
}

PhaseResult Exchange::run(const Plan& plan, std::span<Sample> samples) {
  {
    const std::lock_guard lock(mutex_);
    plan_ = plan;
    plan_.requests = std::min<uint64_t>(plan.requests, samples.size());
    first_sequence_ += static_cast<uint32_t>(result_.counters.sent);
    samples_ = samples;
    result_ = PhaseResult{};
    oldest_ = newest_answered_ = unanswered_ = 0;
    losses_in_a_row_ = 0;
    sending_ = plan_.requests > 0;
    waiting_for_room_ = false;
    result_.start_ns = now_ns();
  }
  try {
    if (plan_.mode == Mode::kClosed) {
      run_closed();
    } else {
      run_open();
    }
  } catch (const ConnectionLost&) {
    const std::lock_guard lock(mutex_);
    end(Ending::kGaveUp);
  }
  const std::lock_guard lock(mutex_);
  result_.end_ns = now_ns();
  // Only an interrupted phase, or one given up, leaves any.
  for (uint64_t i = oldest_; i < result_.counters.sent; ++i) {
    if (samples_[i].received_ns != kPending) continue;
    samples_[i].received_ns = kLost;
    ++result_.counters.lost;
  }
  oldest_ = result_.counters.sent;
  unanswered_ = 0;
  return result_;
}

// Each reply sends the next request from where it is received, be it this thread or a
// listener's: a detour through another thread would be part of every round trip.
void Exchange::run_closed() {
  for (uint32_t i = 0; i < plan_.outstanding; ++i) {
    const std::lock_guard sending(send_mutex_);
    send_next(0);
  }
  while (!finished()) {
    // No clock is read here while replies come: that would be part of the round trip.
    if (client_.wait(slice_ns_) && !stop_.load(std::memory_order_relaxed)) continue;
    uint64_t lost = 0;
    {
      const std::lock_guard lock(mutex_);
      lost = result_.counters.lost;
      expire_unanswered(now_ns());
      lost = result_.counters.lost - lost;
    }
    for (; lost > 0; --lost) {
      const std::lock_guard sending(send_mutex_);
      send_next(0);
    }
  }
}

void Exchange::run_open() {
  const double interval_ns = 1e9 / plan_.rate;
  const int64_t first = result_.start_ns + plan_.first_send_ns;
  for (uint64_t next = 0; !finished();) {
    const int64_t now = now_ns();
    const int64_t due = first + static_cast<int64_t>(static_cast<double>(next) * interval_ns);
    int64_t wake = std::numeric_limits<int64_t>::max();
    bool send = false;
    {
      const std::lock_guard lock(mutex_);
      expire_unanswered(now);
      // Of what a stall has put off, all that was due is sent: it is what the stall has cost.
      if (over(due)) end(Ending::kDuration);
      const bool room = unanswered_ < plan_.outstanding;
      waiting_for_room_ = !room || !sending_;
      send = sending_ && room && due <= now;
      if (sending_ && room) wake = due;
      wake = std::min(wake, oldest_deadline());
    }
    if (send) {
      const std::lock_guard sending(send_mutex_);
      send_next(due);
      ++next;
    } else {
      client_.wait(plan_.pace == Pace::kSpin ? 0 : std::min(wake - now, slice_ns_ - 1));
    }
  }
}

bool Exchange::over(int64_t due_ns) const {
  return plan_.duration_ns > 0 && due_ns - result_.start_ns >= plan_.duration_ns;
}

// Whether the phase has another request to send; ends the sending when it has not.
bool Exchange::may_send(int64_t now_ns) {
  if (!sending_) return false;
  if (stop_.load(std::memory_order_relaxed)) {
    end(Ending::kInterrupted);
  } else if (plan_.mode == Mode::kClosed && over(now_ns)) {
    end(Ending::kDuration);
  } else if (result_.counters.sent >= plan_.requests) {
    end(Ending::kRequests);
  }
  return sending_;
}

// Needs send_mutex_.
void Exchange::send_next(int64_t intended_ns) {
  uint32_t sequence = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!sending_) return;
    sequence = first_sequence_ + static_cast<uint32_t>(result_.counters.sent);
  }
  payloads_.fill(sequence, client_.payload());
  const uint64_t checksum = checksum_of(requester_, sequence, client_.payload());
  {
    const std::lock_guard lock(mutex_);
    const int64_t now = now_ns();
    if (!may_send(now)) return;
    const uint64_t index = result_.counters.sent++;
    samples_[index] = Sample{.client = index_,
                             .sequence = static_cast<uint32_t>(index),
                             .intended_ns = plan_.mode == Mode::kClosed ? now : intended_ns,
                             .sent_ns = now,
                             .received_ns = kPending};
    ++unanswered_;
  }
  if (!client_.send(requester_, sequence, checksum)) {
    const std::lock_guard lock(mutex_);
    ++result_.counters.refused;
  }
}

// Needs send_mutex_.
void Exchange::transmit(uint32_t sequence) {
  payloads_.fill(sequence, client_.payload());
  client_.send(requester_, sequence, checksum_of(requester_, sequence, client_.payload()));
}

// Gives up what is overdue; everything, when stopped.
void Exchange::expire_unanswered(int64_t now_ns) {
  const bool stopped = stop_.load(std::memory_order_relaxed);
  if (stopped) end(Ending::kInterrupted);
  for (; oldest_ < result_.counters.sent; ++oldest_) {
    Sample& sample = samples_[oldest_];
    if (sample.received_ns != kPending) continue;
    if (!stopped && now_ns - sample.sent_ns < plan_.timeout_ns) break;
    sample.received_ns = kLost;
    ++result_.counters.lost;
    --unanswered_;
    if (++losses_in_a_row_ == plan_.give_up_after) end(Ending::kGaveUp);
  }
  may_send(now_ns);
}

int64_t Exchange::oldest_deadline() {
  if (unanswered_ == 0) return std::numeric_limits<int64_t>::max();
  return samples_[oldest_].sent_ns + plan_.timeout_ns;
}

bool Exchange::on_reply(const Message& reply, int64_t received_ns) {
  bool wake = false;
  bool send = false;
  {
    const std::lock_guard lock(mutex_);
    if (reply.requester != requester_) {
      ++result_.counters.foreign;
      return false;
    }
    if (reply.payload.size() != client_.payload().size() ||
        reply.checksum != checksum_of(requester_, reply.sequence, reply.payload)) {
      ++result_.counters.corrupted;
      return false;
    }
    if (reply.sequence == kProbeSequence) {
      probe_answered_ = true;
      return true;
    }
    if (reply.sequence < first_sequence_) {
      ++result_.counters.late;
      return false;
    }
    const uint64_t index = reply.sequence - first_sequence_;
    if (index >= result_.counters.sent) {
      ++result_.counters.corrupted;
      return false;
    }
    Sample& sample = samples_[index];
    if (sample.received_ns == kLost) {
      ++result_.counters.late;
      return false;
    }
    if (sample.received_ns != kPending) {
      ++result_.counters.duplicated;
      return false;
    }
    account(sample, index, received_ns);
    send = plan_.mode == Mode::kClosed && may_send(received_ns);
    wake = waiting_for_room_ || (!sending_ && unanswered_ == 0);
  }
  if (send) {
    const std::lock_guard sending(send_mutex_);
    send_next(0);
  }
  return wake;
}

void Exchange::account(Sample& sample, uint64_t index, int64_t received_ns) {
  sample.received_ns = received_ns;
  ++result_.counters.received;
  --unanswered_;
  losses_in_a_row_ = 0;
  if (index < newest_answered_) ++result_.counters.reordered;
  newest_answered_ = std::max(newest_answered_, index);
  while (oldest_ < result_.counters.sent && samples_[oldest_].received_ns != kPending) ++oldest_;
}

void Exchange::on_malformed() {
  const std::lock_guard lock(mutex_);
  ++result_.counters.corrupted;
}

// The first reason stands.
void Exchange::end(Ending ending) {
  if (!sending_) return;
  sending_ = false;
  result_.ending = ending;
}

bool Exchange::finished() {
  const std::lock_guard lock(mutex_);
  return !sending_ && unanswered_ == 0;
}

}  // namespace tare::echo
