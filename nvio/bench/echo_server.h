// The least that a manager could be: one thread, epoll, and an answer of the size that each request
// asks for.
#pragma once

#include <cstdint>
#include <string>

namespace nvio::bench {

// What a client sends: this header, then `payload` bytes; it gets `answer` bytes back.
struct EchoRequest {
  std::uint32_t payload;
  std::uint32_t answer;
  char rest[40];  // as long as a manager's request
};
static_assert(sizeof(EchoRequest) == 48);

// Serves the socket at `path` in a new process, till its last peer or this one has gone. Returns
// its identifier once it listens; throws std::runtime_error on failure.
int start_echo_server(const std::string& path);

}  // namespace nvio::bench
