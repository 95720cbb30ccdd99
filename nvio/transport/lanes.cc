#include "lanes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace nvio {
namespace {

// Of frames on their way. Beyond, a peer has us answer without reading a word.
constexpr std::size_t kMostRaw = 4 << 20;

}  // namespace

Lanes::Lanes(std::unique_ptr<Channel> channel, bool connects, std::size_t most)
    : channel_(std::move(channel)),
      first_(connects ? 0 : 1),
      next_(first_),
      next_theirs_(1 - first_),
      most_(most) {}

std::uint32_t Lanes::open() {
  const std::uint32_t number = next_;
  next_ += 2;
  lanes_[number].ours = true;
  say(number, FrameKind::open);
  return number;
}

void Lanes::end(std::uint32_t lane) {
  const auto found = lanes_.find(lane);
  if (found == lanes_.end()) return;
  if (!found->second.ours) --theirs_;
  if (!found->second.out.empty()) std::erase(turns_, lane);
  lanes_.erase(found);
  say(lane, FrameKind::end);
}

bool Lanes::is_sending(std::uint32_t lane) const {
  const auto found = lanes_.find(lane);
  return found != lanes_.end() && !found->second.out.empty();
}

std::size_t Lanes::kept() const {
  std::size_t all = begun_.capacity() + raw_.capacity();
  for (const auto& [number, lane] : lanes_) {
    all += lane.in.capacity();
    for (const auto& message : lane.out) all += message.size();
  }
  return all;
}

void Lanes::fail(const std::string& why) {
  if (broken_.empty()) broken_ = why;
}

// --- sending -------------------------------------------------------------------------------------

void Lanes::say(std::uint32_t lane, FrameKind kind) {
  const Frame frame{kFrameMagic, lane, kind, 0};
  const auto bytes = bytes_of(frame);
  raw_.insert(raw_.end(), bytes.begin(), bytes.end());
  if (raw_.size() - sent_ > kMostRaw) fail("it takes nothing");
  flush();
}

void Lanes::send(std::uint32_t number, std::span<const std::byte> head,
                 std::span<const std::byte> body) {
  const auto found = lanes_.find(number);
  if (found == lanes_.end() || !broken_.empty()) return;
  const std::size_t all = head.size() + body.size();
  // A short message over an idle connection is not copied.
  if (!wants_to_send() && all <= kMostFrame) {
    const Frame frame{kFrameMagic, number, FrameKind::last, static_cast<std::uint32_t>(all)};
    const std::array<std::span<const std::byte>, 3> pieces{bytes_of(frame), head, body};
    std::array<iovec, 3> vectors{};
    int count = 0;
    for (const auto& piece : pieces) {
      if (piece.empty()) continue;
      vectors[static_cast<std::size_t>(count++)] = {const_cast<std::byte*>(piece.data()),
                                                    piece.size()};
    }
    const ssize_t done = channel_->send_some(vectors.data(), count, false);
    if (done < 0 && errno != EAGAIN) return fail(std::strerror(errno));
    auto skip = static_cast<std::size_t>(std::max<ssize_t>(done, 0));
    for (const auto& piece : pieces) {
      const std::size_t gone = std::min(skip, piece.size());
      skip -= gone;
      raw_.insert(raw_.end(), piece.begin() + static_cast<std::ptrdiff_t>(gone), piece.end());
    }
    return;
  }
  std::vector<std::byte> message;
  message.reserve(all);
  message.insert(message.end(), head.begin(), head.end());
  message.insert(message.end(), body.begin(), body.end());
  Lane& lane = found->second;
  if (lane.out.empty()) turns_.push_back(number);
  lane.out.push_back(std::move(message));
  flush();
}

void Lanes::put_part(std::uint32_t number, Lane& lane) {
  const std::vector<std::byte>& message = lane.out.front();
  const std::size_t length = std::min<std::size_t>(message.size() - lane.done, kMostFrame);
  const bool is_last = lane.done + length == message.size();
  const Frame frame{kFrameMagic, number, is_last ? FrameKind::last : FrameKind::part,
                    static_cast<std::uint32_t>(length)};
  const auto bytes = bytes_of(frame);
  const auto from = message.begin() + static_cast<std::ptrdiff_t>(lane.done);
  raw_.insert(raw_.end(), bytes.begin(), bytes.end());
  raw_.insert(raw_.end(), from, from + static_cast<std::ptrdiff_t>(length));
  lane.done += length;
  if (is_last) {
    lane.out.pop_front();
    lane.done = 0;
  }
}

void Lanes::flush() {
  while (broken_.empty() && wants_to_send()) {
    if (sent_ == raw_.size()) {
      raw_.clear();
      sent_ = 0;
      const std::uint32_t number = turns_.front();
      turns_.pop_front();
      Lane& lane = lanes_.at(number);
      put_part(number, lane);
      if (!lane.out.empty()) turns_.push_back(number);
    }
    const iovec left{raw_.data() + sent_, raw_.size() - sent_};
    const ssize_t done = channel_->send_some(&left, 1, false);
    if (done < 0 && errno == EAGAIN) return;
    if (done < 0) return fail(std::strerror(errno));
    sent_ += static_cast<std::size_t>(done);
  }
  if (sent_ == raw_.size()) {
    raw_.clear();
    sent_ = 0;
  }
}

// --- receiving -----------------------------------------------------------------------------------

bool Lanes::is_frame(std::span<const std::byte> bytes, Frame& frame) {
  std::memcpy(&frame, bytes.data(), sizeof frame);
  return frame.magic == kFrameMagic && frame.length <= kMostFrame;
}

// A frame that came in part is gone on with where it lies: a long one comes in many pieces.
void Lanes::receive(Taker& taker, std::span<std::byte> room) {
  std::size_t filled = 0;
  std::array<iovec, 2> vectors{};
  int count = 0;
  const bool goes_on = have_ >= sizeof(Frame);
  if (goes_on) {
    vectors[0] = {begun_.data() + have_, begun_.size() - have_};
    count = 1;
  } else {
    std::copy_n(begun_.begin(), have_, room.begin());
    filled = std::exchange(have_, 0);
  }
  vectors[static_cast<std::size_t>(count++)] = {room.data() + filled, room.size() - filled};
  const ssize_t got = channel_->receive_some(vectors.data(), count, false);
  if (got < 0 && errno == EAGAIN) {
    if (!goes_on) have_ = filled;
    return;
  }
  if (got <= 0) return fail(got == 0 ? "it went away" : std::strerror(errno));
  auto more = static_cast<std::size_t>(got);
  Frame frame{};
  if (goes_on) {
    const std::size_t rest = std::min(more, begun_.size() - have_);
    have_ += rest;
    more -= rest;
    if (have_ < begun_.size()) return;
    have_ = 0;
    const std::vector<std::byte> whole = std::exchange(begun_, {});
    const std::span<const std::byte> bytes(whole);
    if (!is_frame(bytes, frame) || !take(frame, bytes.subspan(sizeof frame), taker)) {
      return fail("it broke a rule");
    }
  }
  filled += more;
  std::span<const std::byte> left = room.first(filled);
  while (broken_.empty() && left.size() >= sizeof frame) {
    if (!is_frame(left, frame)) return fail("it broke a rule");
    if (left.size() - sizeof frame < frame.length) break;
    if (!take(frame, left.subspan(sizeof frame, frame.length), taker)) {
      return fail("it broke a rule");
    }
    left = left.subspan(sizeof frame + frame.length);
  }
  if (!broken_.empty()) return;
  have_ = left.size();
  begun_.resize(have_ < sizeof frame ? have_ : sizeof frame + frame.length);
  std::copy(left.begin(), left.end(), begun_.begin());
}

bool Lanes::take(const Frame& frame, std::span<const std::byte> bytes, Taker& taker) {
  if (frame.kind == FrameKind::part || frame.kind == FrameKind::last) {
    return take_bytes(frame, bytes, taker);
  }
  if (frame.length != 0) return false;
  const auto found = lanes_.find(frame.lane);
  switch (frame.kind) {
    case FrameKind::open:
      if (is_ours(frame.lane) || frame.lane != next_theirs_ || theirs_ >= kMostLanes) return false;
      next_theirs_ += 2;
      ++theirs_;
      lanes_[frame.lane].confirmed = true;
      if (taker.on_open(frame.lane)) {
        if (lanes_.contains(frame.lane)) say(frame.lane, FrameKind::opened);
      } else {
        end(frame.lane);
      }
      return true;
    case FrameKind::opened:
      if (!is_ours(frame.lane) || !was_opened(frame.lane)) return false;
      if (found == lanes_.end()) return true;  // ended here meanwhile
      if (std::exchange(found->second.confirmed, true)) return false;
      taker.on_opened(frame.lane);
      return true;
    case FrameKind::end:
      if (!was_opened(frame.lane)) return false;
      if (found == lanes_.end()) return true;  // ended by both
      if (!found->second.ours) --theirs_;
      if (!found->second.out.empty()) std::erase(turns_, frame.lane);
      lanes_.erase(found);
      taker.on_end(frame.lane);
      return true;
    case FrameKind::part:
    case FrameKind::last:
      break;
  }
  return false;
}

bool Lanes::take_bytes(const Frame& frame, std::span<const std::byte> bytes, Taker& taker) {
  if (!was_opened(frame.lane)) return false;
  const auto found = lanes_.find(frame.lane);
  if (found == lanes_.end()) return true;  // said before it heard of the end
  Lane& lane = found->second;
  if (!lane.confirmed || lane.in.size() + bytes.size() > most_) return false;
  if (frame.kind == FrameKind::part && bytes.empty()) return false;
  if (frame.kind == FrameKind::last && lane.in.empty()) return taker.on_message(frame.lane, bytes);
  lane.in.insert(lane.in.end(), bytes.begin(), bytes.end());
  if (frame.kind == FrameKind::part) return true;
  const std::vector<std::byte> whole = std::exchange(lane.in, {});
  return taker.on_message(frame.lane, whole);
}

}  // namespace nvio
