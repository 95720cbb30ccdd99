// Any bytes as a Lustre file's layout: what is told of its stripe must be possible.
#include <cstdlib>
#include <vector>

#include "cache/stripe.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  // A copy of just this size: reading past its end is then found.
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> layout(bytes, bytes + size);
  if (const auto stripe = nvio::parse_lov(layout)) {
    if (*stripe == 0 || *stripe > nvio::kMostStripe || *stripe % (64 << 10) != 0) std::abort();
  }
  return 0;
}
