// A node's manager: one process that serves this node's part of the job's files to the processes of
// other nodes. One thread waits for all connections at once (epoll) and serves what is cached;
// what must wait for the file system is done by a few others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../cache/session.h"
#include "../transport/sha256.h"
#include "../transport/transport.h"

namespace nvio {

struct ManagerOptions {
  std::uint32_t node = 0;
  std::vector<std::uint8_t> secret;  // that peers on TCP must know
  double patience_seconds = 60;      // how long to wait for the first peer
  Silence silence;
};

// Serves whoever connects, till the last peer that proved itself is gone: so it ends with the job,
// also with one that was killed. Returns an exit status.
int run_manager(Session& session, std::vector<std::unique_ptr<Listener>> listeners,
                const ManagerOptions& options);

}  // namespace nvio
