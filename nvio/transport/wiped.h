// Overwrites bytes once they are not needed any more. A core dump of the program that nvio is in is
// that program's to make, and must not hold the job's secret.
#pragma once

#include <cstddef>
#include <cstring>

namespace nvio {

// Of a container whose memory does not move meanwhile: reserve before filling it.
template <typename Bytes>
class Wiped {
 public:
  explicit Wiped(Bytes& bytes) : bytes_(bytes) {}
  ~Wiped() {
    const std::size_t size = bytes_.size() * sizeof bytes_[0];
    if (size == 0) return;
    explicit_bzero(bytes_.data(), size);
    // Copying has left it in vector registers, which a core holds too: they get zeros by the same.
    static void* (*const volatile kMove)(void*, const void*, std::size_t) = std::memmove;
    kMove(bytes_.data(), bytes_.data(), size);
  }
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;

 private:
  Bytes& bytes_;
};

}  // namespace nvio
