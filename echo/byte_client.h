// What clients share whose transport carries bytes: the request's buffer, its header, its replies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "message.h"
#include "transport.h"

namespace tare::echo {

class ByteClient : public Client {
 public:
  void attach(ReplySink& sink) final { sink_ = &sink; }

  std::span<std::byte> payload() final {
    return std::span(request_).subspan(own_bytes_ + kHeaderBytes);
  }

  bool send(uint32_t requester, uint32_t sequence, uint64_t checksum) final {
    const auto header = std::span(request_).subspan(own_bytes_).first<kHeaderBytes>();
    encode_header(
        {.requester = requester, .sequence = sequence, .checksum = checksum, .payload = {}},
        static_cast<uint32_t>(payload().size()), header);
    return transmit(request_, sequence);
  }

 protected:
  /// Keeps `own_bytes` free before the header, for one of the transport's own.
  explicit ByteClient(const Endpoint& endpoint, std::size_t own_bytes = 0)
      : own_bytes_(own_bytes), request_(own_bytes + kHeaderBytes + endpoint.payload_bytes) {}

  /// Sends a request, header and payload. False: the system refused it now.
  virtual bool transmit(std::span<std::byte> request, uint32_t sequence) = 0;

  /// Hands on what came, which should be a whole message.
  void deliver(std::span<const std::byte> bytes, int64_t received_ns) {
    if (const auto reply = decode_message(bytes)) {
      sink_->on_reply(*reply, received_ns);
    } else {
      sink_->on_malformed();
    }
  }

  ReplySink& sink() { return *sink_; }

  /// Of a request, header and payload.
  std::size_t message_bytes() const { return request_.size() - own_bytes_; }

 private:
  const std::size_t own_bytes_;
  std::vector<std::byte> request_;
  ReplySink* sink_ = nullptr;
};

}  // namespace tare::echo
