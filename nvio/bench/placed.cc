#include "placed.h"

namespace nvio::bench {

Placed::Placed(int place) {
  sched_getaffinity(0, sizeof before_, &before_);
  if (CPU_COUNT(&before_) <= place) return;
  unsigned processor = 0;
  while (!CPU_ISSET(processor, &before_) || place-- > 0) ++processor;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  sched_setaffinity(0, sizeof one, &one);
}

}  // namespace nvio::bench
