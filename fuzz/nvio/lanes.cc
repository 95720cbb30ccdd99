// Any bytes as another manager would send them: what is kept stays within what the lanes may keep,
// and no message is longer than one may be.
#include "transport/lanes.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

namespace {

constexpr std::size_t kMost = 4096;

// Gives the input in pieces, and takes everything.
class Input : public nvio::Channel {
 public:
  Input(const unsigned char* data, std::size_t size) : data_(data), size_(size) {}
  ssize_t send_some(const iovec* vectors, int count, bool /*wait*/) override {
    ssize_t sent = 0;
    for (int i = 0; i < count; ++i) sent += static_cast<ssize_t>(vectors[i].iov_len);
    return sent;
  }
  ssize_t receive_some(const iovec* vectors, int /*count*/, bool /*wait*/) override {
    const std::size_t length = std::min({size_, vectors->iov_len, std::size_t{37}});
    std::memcpy(vectors->iov_base, data_, length);
    data_ += length;
    size_ -= length;
    return static_cast<ssize_t>(length);
  }
  int descriptor() const override { return -1; }
  bool is_dead() const override { return false; }
  bool is_same_user() const override { return true; }

 private:
  const unsigned char* data_;
  std::size_t size_;
};

struct Taker : nvio::Lanes::Taker {
  bool on_open(std::uint32_t lane) override {
    open.insert(lane);
    return lane % 3 != 0;
  }
  void on_opened(std::uint32_t lane) override {
    if (!open.contains(lane)) std::abort();
  }
  bool on_message(std::uint32_t lane, std::span<const std::byte> message) override {
    if (!open.contains(lane) || message.size() > kMost) std::abort();
    lanes->send(lane, message);
    if (message.size() % 5 == 1) lanes->end(lane);
    return message.size() % 7 != 6;
  }
  void on_end(std::uint32_t lane) override {
    if (open.erase(lane) == 0) std::abort();
  }
  nvio::Lanes* lanes = nullptr;
  std::set<std::uint32_t> open;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  nvio::Lanes lanes(std::make_unique<Input>(data, size), false, kMost);
  Taker taker;
  taker.lanes = &lanes;
  for (int i = 0; i < 3; ++i) taker.open.insert(lanes.open());
  std::vector<std::byte> room(nvio::kLaneRoom);
  while (lanes.broken().empty()) {
    lanes.receive(taker, room);
    if (lanes.kept() > (lanes.lanes() + 1) * 2 * kMost + (1 << 20)) std::abort();
  }
  return 0;
}
