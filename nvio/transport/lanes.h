// Many conversations over one connection: lanes, in which either end opens one for each process for
// which it asks something of the other, and whole messages go both ways. Long messages go in parts,
// in turns, so that none waits for the whole of another one's.
//
// What must be kept is bounded without words about it: who opened a lane asks, and asks again once
// it has its answer, so that each end has room for one message of each lane and takes everything
// off the connection at once. A process that is slow to take its answer so keeps nobody else from
// theirs.
//
// Knows frames and lanes (docs/formats/nvio-wire.md), but not what the messages say. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport.h"

namespace nvio {

enum class FrameKind : std::uint32_t {
  open = 1,    // a lane begins
  opened = 2,  // its other end is there: what is lost before may be tried anew
  part = 3,    // of a message, of which more follows
  last = 4,    // the end of a message
  end = 5,     // of the lane; from either end
};

struct Frame {
  std::uint32_t magic;
  std::uint32_t lane;  // even: opened by who made the connection; odd: by the other end
  FrameKind kind;
  std::uint32_t length;  // bytes that follow
};
static_assert(sizeof(Frame) == 16);
constexpr std::uint32_t kFrameMagic = 0x4e4c564e;  // "NVLN"
constexpr std::uint32_t kMostFrame = 64 << 10;
constexpr std::size_t kLaneRoom = 2 * (sizeof(Frame) + kMostFrame);  // bytes to receive into
constexpr std::size_t kMostLanes = 1 << 16;  // that the other end may have open

// A frame, a request or a reply, as it is sent.
template <typename Message>
std::span<const std::byte> bytes_of(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

class Lanes {
 public:
  // Who is told what the other end did. It may send and end within these calls.
  class Taker {
   public:
    virtual ~Taker() = default;
    virtual bool on_open(std::uint32_t lane) = 0;  // false: the lane is ended at once
    virtual void on_opened(std::uint32_t lane) = 0;
    // A whole message; false where it breaks a rule, which ends the connection.
    virtual bool on_message(std::uint32_t lane, std::span<const std::byte> message) = 0;
    virtual void on_end(std::uint32_t lane) = 0;
  };

  // `connects`: this end made the connection. Longer messages than `most` end it.
  Lanes(std::unique_ptr<Channel> channel, bool connects, std::size_t most);

  // A new lane; never the number of an earlier one.
  std::uint32_t open();
  // Queues a message on a lane that is open, of these two pieces.
  void send(std::uint32_t lane, std::span<const std::byte> head,
            std::span<const std::byte> body = {});
  // Ends a lane, with what it has not sent yet.
  void end(std::uint32_t lane);
  // Whether the lane has bytes that the connection did not take yet.
  bool is_sending(std::uint32_t lane) const;

  // To be called when the channel is readable, and when it may take more. `room`: kLaneRoom bytes
  // that many connections share, since between two calls each keeps only the begin of a frame.
  void receive(Taker& taker, std::span<std::byte> room);
  void flush();
  bool wants_to_send() const { return sent_ < raw_.size() || !turns_.empty(); }
  // Why the connection is no good any more; empty while it is.
  const std::string& broken() const { return broken_; }

  Channel& channel() { return *channel_; }
  std::size_t lanes() const { return lanes_.size(); }
  // Bytes that are kept of what came or is to go.
  std::size_t kept() const;

 private:
  struct Lane {
    bool ours = false;
    bool confirmed = false;
    std::vector<std::byte> in;  // of a message that is not whole yet
    std::deque<std::vector<std::byte>> out;
    std::size_t done = 0;  // bytes of the first of them that are on their way
  };

  bool is_ours(std::uint32_t lane) const { return lane % 2 == first_; }
  bool was_opened(std::uint32_t lane) const {
    return lane < (is_ours(lane) ? next_ : next_theirs_);
  }
  static bool is_frame(std::span<const std::byte> bytes, Frame& frame);
  bool take(const Frame& frame, std::span<const std::byte> bytes, Taker& taker);
  bool take_bytes(const Frame& frame, std::span<const std::byte> bytes, Taker& taker);
  void say(std::uint32_t lane, FrameKind kind);
  // Puts the lane's next part behind what is on its way.
  void put_part(std::uint32_t number, Lane& lane);
  void fail(const std::string& why);

  std::unique_ptr<Channel> channel_;
  std::uint32_t first_;  // 0 or 1: this end's numbers are even or odd
  std::uint32_t next_, next_theirs_;
  std::size_t theirs_ = 0;  // lanes that the other end has open
  std::size_t most_;
  std::map<std::uint32_t, Lane> lanes_;
  std::deque<std::uint32_t> turns_;  // lanes with something to send, each once
  std::vector<std::byte> begun_;     // a frame that is not whole yet, of which
  std::size_t have_ = 0;             // so many bytes are there
  std::vector<std::byte> raw_;       // whole frames, of which the first `sent_` bytes are gone
  std::size_t sent_ = 0;
  std::string broken_;
};

}  // namespace nvio
