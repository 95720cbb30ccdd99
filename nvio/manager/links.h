// The connections to the managers of other nodes: one a pair of nodes, made when a process of
// either first asks something of the other, shared by all. Each process has a lane in it
// (transport/lanes.h).
//
// Which of two connections stays, where both ends begin at the same moment, is decided by who is
// called, when the caller has shown the secret: a node that calls the other itself takes no call of
// one with a higher number, and nobody takes a second one. So none is given up that was told "yes".
//
// One thread, but for attempts to connect, which wait for others.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../nodes/reach.h"
#include "../transport/lanes.h"
#include "workers.h"

namespace nvio {

// A lane that another manager opened here.
struct ServedLane {
  std::uint64_t link = 0;
  std::uint32_t lane = 0;
};

class Links {
 public:
  // Who is told. `asker` and `served` are numbers of theirs.
  class User {
   public:
    virtual ~User() = default;
    virtual void on_answer(std::uint64_t asker, std::span<const std::byte> reply) = 0;
    virtual void on_lost(std::uint64_t asker, const std::string& why) = 0;
    // A process of another node begins to ask here: its number, 0 to refuse.
    virtual std::uint64_t on_lane(const ServedLane& lane) = 0;
    virtual bool on_request(std::uint64_t served, std::span<const std::byte> message) = 0;
    virtual void on_lane_end(std::uint64_t served) = 0;
  };

  // One attempt to connect to a node's manager, on a thread of its own: it may block.
  using Reach = std::function<Reached(std::uint32_t node)>;

  // `user` must outlive it. `most`: the longest message.
  Links(User& user, Reach reach, std::uint32_t own_node, std::size_t most);
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Has `poll` (epoll) tell of what is up here, by numbers from `first` on.
  bool open(int poll, std::uint64_t first);
  void on_event(std::uint64_t number, std::uint32_t events);
  // After the events of a turn: lets go of what broke in it, and has epoll tell of what is to go.
  void settle();
  // Every pulse of the silence: lets go of who should have answered or is dead.
  void look();

  // Passes a request of a process on to a node; it has no other one under way. A sentence, where
  // nothing will come of it.
  std::optional<std::string> ask(std::uint64_t asker, std::uint32_t node,
                                 std::span<const std::byte> request);
  void forget(std::uint64_t asker);
  void answer(const ServedLane& lane, std::span<const std::byte> head,
              std::span<const std::byte> body);
  bool is_sending(const ServedLane& lane) const;
  void end(const ServedLane& lane);

  // Whether a manager that calls, and has proved itself, is to be taken; then `adopt` takes it.
  bool takes(std::uint32_t node) const;
  void adopt(std::uint32_t node, std::unique_ptr<Channel> channel);

  // Connections that there are.
  std::size_t count() const { return links_.size(); }

 private:
  struct Link;
  class Taker;
  enum class State : std::uint8_t { waiting, opening, open, lost };
  // What one process has at one node.
  struct Way {
    State state = State::waiting;
    bool is_asked = false;
    std::uint32_t lane = 0;
    std::vector<std::byte> request;  // till the lane is there
    std::chrono::steady_clock::time_point until;
    std::string why;
  };
  // An attempt under way; who waits for it is known by its way's state.
  struct Calling {
    // Nobody needs it any more. Its thread looks, too: a manager that it started now would be
    // alone.
    std::shared_ptr<std::atomic<bool>> is_over = std::make_shared<std::atomic<bool>>(false);
  };

  void connect(std::uint32_t node, std::unique_ptr<Channel> channel, bool calls);
  void call(std::uint32_t node, std::chrono::milliseconds pause);
  void called(std::uint32_t node, Reached reached, std::chrono::milliseconds pause);
  bool is_awaited(std::uint32_t node) const;
  void begin(Link& link, std::uint64_t asker, Way& way);
  void lose(std::uint64_t number, const std::string& why);
  // Ends a way for good, and tells who waits for its answer.
  void give_up(std::uint64_t asker, Way& way, const std::string& why);
  void want(Link& link);
  void touch(Link& link);
  Link* link_to(std::uint32_t node);
  Way* way_of(std::uint64_t asker, std::uint32_t node);

  User& user_;
  Reach reach_;
  std::uint32_t own_;
  std::size_t most_;
  std::vector<std::byte> room_;
  int poll_ = -1;
  std::uint64_t first_ = 0, next_ = 0;
  std::vector<std::uint64_t> touched_;                    // links that `settle` is to look at
  std::map<std::uint64_t, std::unique_ptr<Link>> links_;  // by number
  std::map<std::uint32_t, std::uint64_t> numbers_;        // of a node's
  std::map<std::uint32_t, Calling> calling_;
  std::map<std::uint64_t, std::map<std::uint32_t, Way>> ways_;  // by asker and node
  Workers callers_;
};

}  // namespace nvio
