// Overwrites bytes once they are not needed any more. A core dump of the program that nvio is in is
// that program's to make, and must not hold the job's secret.
#pragma once

#include <cstring>

namespace nvio {

// Of a container whose memory does not move meanwhile: reserve before filling it.
template <typename Bytes>
class Wiped {
 public:
  explicit Wiped(Bytes& bytes) : bytes_(bytes) {}
  ~Wiped() {
    if (bytes_.size() > 0) explicit_bzero(bytes_.data(), bytes_.size() * sizeof bytes_[0]);
  }
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;

 private:
  Bytes& bytes_;
};

}  // namespace nvio
