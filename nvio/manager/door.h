// Where peers come in: the manager's listeners, and what it does when there is no descriptor left
// for one more.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../transport/transport.h"

namespace nvio {

class Door {
 public:
  Door(std::vector<std::unique_ptr<Listener>> listeners, std::uint32_t node);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Has `poll` (epoll) tell of peers: each listener by its number, from 0.
  bool open(int poll);
  // The peer that listener `number` told of, or null. One for which there is no descriptor is told
  // so, by the descriptor that is kept for that, with how many `peers` there are.
  std::unique_ptr<Channel> accept(std::uint64_t number, std::size_t peers);
  void refuse(Channel& channel, std::size_t peers) const;

  // Even the kept descriptor is gone, to another process: peers wait, and `reopen` is to be called
  // every now and then.
  bool is_shut() const { return is_shut_; }
  void reopen();

  // How many connections there may be, so that descriptors are left for the job's files.
  static std::size_t most();

 private:
  bool watch(bool on);
  void keep_one();

  std::vector<std::unique_ptr<Listener>> listeners_;
  std::uint32_t node_;
  int poll_ = -1;
  int kept_ = -1;
  bool is_shut_ = false;
};

}  // namespace nvio
