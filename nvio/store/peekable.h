// A value of the shared tables that is changed under a lock, but also looked at without it: by
// whoever searches for a candidate, and checks again under the lock what was found. Stores keep
// their order (release): the process may be killed after any of them, and the lock be taken over.
#pragma once

#include <atomic>

namespace nvio {

template <typename Value>
class Peekable {
 public:
  Peekable() = default;
  Peekable(const Peekable& other) : value_(Value{other}) {}
  Peekable& operator=(const Peekable& other) { return *this = Value{other}; }
  ~Peekable() = default;

  operator Value() const { return value_.load(std::memory_order_relaxed); }
  Peekable& operator=(Value value) {
    value_.store(value, std::memory_order_release);
    return *this;
  }
  // Not one step: the lock is held, or a lost update does no harm.
  Peekable& operator|=(Value bits) { return *this = static_cast<Value>(*this | bits); }
  Peekable& operator&=(Value bits) { return *this = static_cast<Value>(*this & bits); }
  Value operator++(int) {
    const Value before = *this;
    *this = static_cast<Value>(before + 1);
    return before;
  }

 private:
  std::atomic<Value> value_;
};

}  // namespace nvio
