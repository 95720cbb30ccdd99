// The far side of a tap: answers in user space what the host sends into it. A host process that
// pings through it pays for the tap hop and for this program's wake-up, and for no guest.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "costs.h"
#include "frame.h"
#include "line.h"
#include "measurement.h"
#include "service.h"

namespace tare::probe {
namespace {

constexpr MacAddress kMac = {std::byte{0x02}, std::byte{'t'}, std::byte{'a'},
                             std::byte{'r'},  std::byte{'e'}, std::byte{1}};

ifreq request_for(const std::string& name) {
  ifreq request = {};
  if (name.empty() || name.size() >= IFNAMSIZ) {
    throw std::runtime_error("\"" + name + "\" cannot name an interface: give 1 to " +
                             std::to_string(IFNAMSIZ - 1) + " characters");
  }
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

int make_tap(const std::string& name) {
  const int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  if (tap < 0) throw_errno("cannot open /dev/net/tun");
  ifreq request = request_for(name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(tap, TUNSETIFF, &request) != 0) {
    throw_errno("cannot make the tap " + name + " (be root; is the name taken?)");
  }
  return tap;
}

void bring_up(const std::string& name) {
  const int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request = request_for(name);
  if (ioctl(socket_fd, SIOCGIFFLAGS, &request) != 0) throw_errno("cannot examine " + name);
  request.ifr_flags |= IFF_UP;
  if (ioctl(socket_fd, SIOCSIFFLAGS, &request) != 0) throw_errno("cannot bring up " + name);
  close(socket_fd);
}

struct Counters {
  std::atomic<uint64_t> frames = 0;
  std::atomic<uint64_t> echoes = 0;
};

// Blocks in read alone: waiting for the end too would cost a system call each frame.
void answer(int tap, Counters& counters) {
  std::array<std::byte, 65536> buffer;
  while (true) {
    const ssize_t length = read(tap, buffer.data(), buffer.size());
    if (length < 0) {
      if (errno == EINTR || errno == EIO) continue;  // EIO: the interface is down
      return;
    }
    counters.frames.fetch_add(1, std::memory_order_relaxed);
    const std::span<std::byte> frame(buffer.data(), static_cast<std::size_t>(length));
    const auto answer = answer_frame(frame, kMac);
    if (answer == tare::probe::Answer::kNone) continue;
    if (write(tap, frame.data(), frame.size()) < 0) continue;
    if (answer != tare::probe::Answer::kArp) {
      counters.echoes.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

void run(const std::string& name) {
  static Counters counters;
  Service service;
  const int tap = make_tap(name);
  bring_up(name);
  std::thread(answer, tap, std::ref(counters)).detach();
  print_line({{"event", "ready"}, {"interface", name}});
  service.wait_for(-1);
  print_line({{"event", "stopped"},
              {"interface", name},
              {"frames", counters.frames.load()},
              {"echoes", counters.echoes.load()}});
  // The answering thread cannot be called out of read; the kernel removes the tap with us.
  std::_Exit(0);
}

}  // namespace

void add_tap_echo(Command costs) {
  static std::string name;
  const Command command =
      costs.add("tap-echo",
                "Make a tap and answer ARP, ICMP echo and UDP for every address behind it, until\n"
                "SIGTERM. Give the interface an address, then ping another one of that network.");
  command.add("--name", name, "name of the interface to make", "IF").required();
  command.calls([] { run(name); });
}

}  // namespace tare::probe
