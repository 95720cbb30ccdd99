#include "links.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "../nodes/wire.h"
#include "watched.h"

namespace nvio {
namespace {

using Clock = std::chrono::steady_clock;

// Connecting waits for others: for their managers to start, on a cluster that starts as a whole.
constexpr unsigned kCallers = 4;
// Of the six pulses of a silence. Counted, not timed: a job that was suspended as a whole goes on.
constexpr unsigned kMostSilent = 4;

std::string about(std::uint32_t node, const std::string& why) {
  return " the manager of node " + std::to_string(node) + ": " + why;
}

}  // namespace

struct Links::Link {
  std::uint64_t number = 0;
  std::uint32_t node = 0;
  std::unique_ptr<Lanes> lanes;
  std::map<std::uint32_t, std::uint64_t> askers, served;  // by lane
  std::uint32_t events = EPOLLIN;
  bool is_heard = false;    // since the last look
  bool is_touched = false;  // in this turn of the loop
  unsigned silent = 0;      // looks without a word, while somebody waits for one
};

// What the other end of a link does.
class Links::Taker : public Lanes::Taker {
 public:
  Taker(Links& links, Link& link) : links_(links), link_(link) {}

  bool on_open(std::uint32_t lane) override {
    const std::uint64_t served = links_.user_.on_lane({link_.number, lane});
    if (served != 0) link_.served[lane] = served;
    return served != 0;
  }
  void on_opened(std::uint32_t lane) override {
    Way& way = *links_.way_of(link_.askers.at(lane), link_.node);
    way.state = State::open;
    link_.lanes->send(lane, std::exchange(way.request, {}));
  }
  bool on_message(std::uint32_t lane, std::span<const std::byte> message) override {
    if (const auto served = link_.served.find(lane); served != link_.served.end()) {
      return links_.user_.on_request(served->second, message);
    }
    const std::uint64_t asker = link_.askers.at(lane);
    Reply reply{};
    if (message.size() < sizeof reply) return false;
    std::memcpy(&reply, message.data(), sizeof reply);
    if (reply.magic == kWorkingMagic) return true;  // its process hears that from us
    Way& way = *links_.way_of(asker, link_.node);
    if (reply.magic != kReplyMagic || reply.payload != message.size() - sizeof reply ||
        !std::exchange(way.is_asked, false)) {
      return false;
    }
    links_.user_.on_answer(asker, message);
    return true;
  }
  void on_end(std::uint32_t lane) override {
    if (const auto served = link_.served.extract(lane)) {
      links_.user_.on_lane_end(served.mapped());
    } else if (const auto asker = link_.askers.extract(lane)) {
      links_.give_up(asker.mapped(), *links_.way_of(asker.mapped(), link_.node),
                     "lost" + about(link_.node, "it ended the conversation"));
    }
  }

 private:
  Links& links_;
  Link& link_;
};

Links::Links(User& user, Reach reach, std::uint32_t own_node, std::size_t most)
    : user_(user),
      reach_(std::move(reach)),
      own_(own_node),
      most_(most),
      room_(kLaneRoom),
      callers_(kCallers) {}

Links::~Links() {
  for (const auto& [node, calling] : calling_) calling.is_over->store(true);
}

bool Links::open(int poll, std::uint64_t first) {
  poll_ = poll;
  first_ = first;
  next_ = first + 1;
  return watch(poll_, EPOLL_CTL_ADD, callers_.descriptor(), first);
}

Links::Link* Links::link_to(std::uint32_t node) {
  const auto found = numbers_.find(node);
  return found == numbers_.end() ? nullptr : links_.at(found->second).get();
}

Links::Way* Links::way_of(std::uint64_t asker, std::uint32_t node) {
  return &ways_.at(asker).at(node);
}

// --- connections ---------------------------------------------------------------------------------

bool Links::takes(std::uint32_t node) const {
  if (numbers_.contains(node)) return false;
  const auto calling = calling_.find(node);
  return calling == calling_.end() || calling->second.is_over->load() || own_ > node;
}

void Links::adopt(std::uint32_t node, std::unique_ptr<Channel> channel) {
  if (const auto calling = calling_.find(node); calling != calling_.end()) {
    calling->second.is_over->store(true);
  }
  connect(node, std::move(channel), false);
}

void Links::connect(std::uint32_t node, std::unique_ptr<Channel> channel, bool calls) {
  auto link = std::make_unique<Link>();
  link->number = next_++;
  link->node = node;
  link->lanes = std::make_unique<Lanes>(std::move(channel), calls, most_);
  Link& made = *link;
  links_[made.number] = std::move(link);
  numbers_[node] = made.number;
  watch(poll_, EPOLL_CTL_ADD, made.lanes->channel().descriptor(), made.number);
  for (auto& [asker, ways] : ways_) {
    const auto way = ways.find(node);
    if (way != ways.end() && way->second.state == State::waiting) begin(made, asker, way->second);
  }
}

void Links::call(std::uint32_t node, std::chrono::milliseconds pause) {
  const auto reached = std::make_shared<Reached>();
  callers_.add(
      [this, node, pause, reached, is_over = calling_[node].is_over] {
        std::this_thread::sleep_for(pause);
        if (!is_over->load()) *reached = reach_(node);
      },
      [this, node, pause, reached] { called(node, std::move(*reached), pause); });
}

void Links::called(std::uint32_t node, Reached reached, std::chrono::milliseconds pause) {
  const bool is_over = calling_.at(node).is_over->load();
  calling_.erase(node);
  if (reached.channel != nullptr && !is_over) {
    connect(node, std::move(reached.channel), true);
    return;
  }
  // Those who waited may have what they wanted, or be gone; a new one may have come.
  bool is_wanted = false;
  for (auto& [asker, ways] : ways_) {
    const auto found = ways.find(node);
    if (found == ways.end() || found->second.state != State::waiting) continue;
    if (!is_over && (reached.is_refused || Clock::now() > found->second.until)) {
      give_up(asker, found->second, "cannot reach" + about(node, reached.why));
    } else {
      is_wanted = true;
    }
  }
  if (is_wanted) {
    constexpr std::chrono::milliseconds kMostPause{50};
    call(node, std::min(2 * pause + std::chrono::milliseconds(1), kMostPause));
  }
}

void Links::lose(std::uint64_t number, const std::string& why) {
  const auto found = links_.find(number);
  const std::unique_ptr<Link> link = std::move(found->second);
  links_.erase(found);
  numbers_.erase(link->node);
  epoll_ctl(poll_, EPOLL_CTL_DEL, link->lanes->channel().descriptor(), nullptr);
  for (const auto& [lane, served] : link->served) user_.on_lane_end(served);
  bool is_wanted = false;
  for (const auto& [lane, asker] : link->askers) {
    Way& way = *way_of(asker, link->node);
    // A manager that ends just now may still take a connection: nothing was lost with it.
    if (way.state == State::opening && Clock::now() < way.until) {
      way.state = State::waiting;
      is_wanted = true;
    } else {
      give_up(asker, way, "lost" + about(link->node, why));
    }
  }
  if (is_wanted && !calling_.contains(link->node)) {
    call(link->node, {});
  }
}

void Links::touch(Link& link) {
  if (!std::exchange(link.is_touched, true)) touched_.push_back(link.number);
}

void Links::settle() {
  // To let go of one may touch others.
  while (!touched_.empty()) {
    const std::uint64_t number = touched_.back();
    touched_.pop_back();
    const auto found = links_.find(number);
    if (found == links_.end()) continue;
    found->second->is_touched = false;
    if (const std::string why = found->second->lanes->broken(); !why.empty()) {
      lose(number, why);
    } else {
      want(*found->second);
    }
  }
}

void Links::look() {
  std::vector<std::pair<std::uint64_t, const char*>> gone;
  for (const auto& [number, link] : links_) {
    bool is_awaited = false;
    for (const auto& [lane, asker] : link->askers) {
      is_awaited = is_awaited || way_of(asker, link->node)->is_asked;
    }
    link->silent = is_awaited && !link->is_heard ? link->silent + 1 : 0;
    link->is_heard = false;
    if (link->lanes->channel().is_dead()) {
      gone.emplace_back(number, "its machine is gone");
    } else if (link->silent >= kMostSilent) {
      gone.emplace_back(number, "it does not answer");
    }
  }
  for (const auto& [number, why] : gone) lose(number, why);
}

void Links::on_event(std::uint64_t number, std::uint32_t events) {
  if (number == first_) {
    callers_.collect();
    return;
  }
  const auto found = links_.find(number);
  if (found == links_.end()) return;
  Link& link = *found->second;
  touch(link);
  if ((events & EPOLLOUT) != 0) link.lanes->flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    link.is_heard = true;
    Taker taker(*this, link);
    link.lanes->receive(taker, room_);
  }
}

void Links::want(Link& link) {
  const std::uint32_t events = EPOLLIN | (link.lanes->wants_to_send() ? EPOLLOUT : 0U);
  if (std::exchange(link.events, events) == events) return;
  watch(poll_, EPOLL_CTL_MOD, link.lanes->channel().descriptor(), link.number, events);
}

// --- lanes ---------------------------------------------------------------------------------------

bool Links::is_awaited(std::uint32_t node) const {
  return std::any_of(ways_.begin(), ways_.end(), [node](const auto& one) {
    const auto way = one.second.find(node);
    return way != one.second.end() && way->second.state == State::waiting;
  });
}

void Links::begin(Link& link, std::uint64_t asker, Way& way) {
  touch(link);
  way.state = State::opening;
  way.lane = link.lanes->open();
  link.askers[way.lane] = asker;
}

void Links::give_up(std::uint64_t asker, Way& way, const std::string& why) {
  way.state = State::lost;
  way.why = why;
  way.request = {};
  if (std::exchange(way.is_asked, false)) user_.on_lost(asker, why);
}

std::optional<std::string> Links::ask(std::uint64_t asker, std::uint32_t node,
                                      std::span<const std::byte> request) {
  const auto [found, is_new] = ways_[asker].try_emplace(node);
  Way& way = found->second;
  if (way.state == State::lost) return way.why;
  way.is_asked = true;
  Link* const link = link_to(node);
  if (way.state == State::open) {
    touch(*link);
    link->lanes->send(way.lane, request);
    return std::nullopt;
  }
  way.request.assign(request.begin(), request.end());
  way.until = Clock::now() + kManagerPatience;
  if (link != nullptr) {
    begin(*link, asker, way);
  } else if (!calling_.contains(node)) {
    call(node, {});
  }
  return std::nullopt;
}

void Links::forget(std::uint64_t asker) {
  const auto found = ways_.extract(asker);
  if (!found) return;
  for (const auto& [node, way] : found.mapped()) {
    const auto calling = calling_.find(node);
    if (calling != calling_.end() && !is_awaited(node)) calling->second.is_over->store(true);
    if (way.state != State::opening && way.state != State::open) continue;
    Link* const link = link_to(node);
    touch(*link);
    link->askers.erase(way.lane);
    link->lanes->end(way.lane);
  }
}

void Links::answer(const ServedLane& lane, std::span<const std::byte> head,
                   std::span<const std::byte> body) {
  const auto found = links_.find(lane.link);
  if (found == links_.end()) return;
  touch(*found->second);
  found->second->lanes->send(lane.lane, head, body);
}

bool Links::is_sending(const ServedLane& lane) const {
  const auto found = links_.find(lane.link);
  return found != links_.end() && found->second->lanes->is_sending(lane.lane);
}

void Links::end(const ServedLane& lane) {
  const auto found = links_.find(lane.link);
  if (found == links_.end()) return;
  touch(*found->second);
  found->second->served.erase(lane.lane);
  found->second->lanes->end(lane.lane);
}

}  // namespace nvio
