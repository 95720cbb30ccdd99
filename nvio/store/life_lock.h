// Who lives in a store: locks on its file `alive`, which end with the process however it ends. They
// are fcntl's, of an opening (F_OFD_SETLK), since of flock's a shared one is lost where it cannot
// be had alone, and none can be looked at without being taken.
#pragma once

#include <fcntl.h>

namespace nvio {

class LifeLock {
 public:
  enum class Kind : short { none = F_UNLCK, shared = F_RDLCK, exclusive = F_WRLCK };

  // Takes over a descriptor of `alive`, open for reading and writing; -1: it could not be had, and
  // no lock can.
  explicit LifeLock(int fd = -1) : fd_(fd) {}
  LifeLock(LifeLock&& other) noexcept;
  LifeLock& operator=(LifeLock&& other) noexcept;
  ~LifeLock();

  bool is_open() const { return fd_ >= 0; }
  // Waits until nobody else has it alone; who has it alone holds it on the way, without a gap.
  // False where `alive` was removed meanwhile.
  bool share();
  // Never waits: what is held stays as it is while somebody else holds any of it.
  bool take_alone();
  void give_up();
  // How others hold it.
  Kind of_others() const;
  // It is of a store that is gone.
  bool is_removed() const;

  // Where processes come in one after the other (recovery/enter_store.h).
  class Door {
   public:
    explicit Door(const LifeLock& life);  // waits
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;
    ~Door();

   private:
    int fd_;
  };

 private:
  int fd_;
};

}  // namespace nvio
