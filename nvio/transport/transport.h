// How the processes of a job reach a node's manager: connections that carry bytes in order. All
// that another transport (a fabric library in the manager) must offer stands here; sockets are the
// one that is built (socket.cc).
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "../settings/settings.h"

namespace nvio {

// How long nothing may be heard of a peer (`silence` of docs/nvio.md).
struct Silence {
  // A peer that is asked and says nothing for so long is taken for gone: a call that waits for it
  // returns ETIMEDOUT.
  std::chrono::seconds most{kSilence};
  // A machine that acknowledges nothing for so long is taken for dead, also where nothing is asked.
  // A stopped process's machine is not: a suspended job goes on when it is resumed.
  std::chrono::seconds dead_host() const { return most / 2; }
  // A manager that works says so this often, and looks at all its peers.
  std::chrono::seconds pulse() const { return most / 6; }
};

// One connection. One thread may send while another receives; not two the same.
class Channel {
 public:
  virtual ~Channel() = default;

  // Sends what it can of the vectors; with `wait` at least one byte. Returns the bytes taken, or
  // -1 with errno (EAGAIN: nothing now). Never raises SIGPIPE.
  virtual ssize_t send_some(const iovec* vectors, int count, bool wait) = 0;
  // Receives into the vectors, as much as is there; with `wait` at least one byte. Returns 0 when
  // the peer is gone, or -1 with errno (EAGAIN: nothing now).
  virtual ssize_t receive_some(const iovec* vectors, int count, bool wait) = 0;
  // Readable when there is something to receive or the peer is gone; for epoll.
  virtual int descriptor() const = 0;
  // Whether the peer's machine has acknowledged nothing of what was sent for too long. (Where
  // nothing is on its way, the transport looks itself, and ends the connection.)
  virtual bool is_dead() const = 0;
  // Whether the transport itself says that the peer is a process of this user.
  virtual bool is_same_user() const = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Readable when a peer wants to connect; for epoll.
  virtual int descriptor() const = 0;
  // The next peer, or null with errno (EAGAIN: there is none now).
  virtual std::unique_ptr<Channel> accept() = 0;
  // As `connect_to` wants it.
  virtual std::string address() const = 0;
};

// Addresses are "unix:/path/of/socket" and "tcp:host:port". Both return null with a sentence in
// `why`. A unix socket that is in the way must be removed first by who may; port 0 takes any.
std::unique_ptr<Channel> connect_to(const std::string& address, Silence silence, std::string& why);
std::unique_ptr<Listener> listen_at(const std::string& address, Silence silence, std::string& why);

// Whole messages over a channel. Return 0 or an errno value (ECONNRESET: the peer went away).
int send_all(Channel& channel, const iovec* vectors, int count);
int receive_all(Channel& channel, void* data, std::size_t length);

}  // namespace nvio
