// Any bytes as a manager's peer would send them: what is parsed must be within bounds, and building
// an accepted `open` again must give the same bytes.
#include "nodes/wire.h"

#include <cstdlib>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace nvio;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  while (size >= sizeof(Request)) {
    const auto request =
        parse_request(std::span<const std::byte, sizeof(Request)>(bytes, sizeof(Request)));
    if (!request) return 0;
    bytes += sizeof(Request);
    size -= sizeof(Request);
    if (request->payload > kMostPayload || request->length > kMostPayload) std::abort();
    const std::size_t length = std::min<std::size_t>(size, request->payload);
    const std::span payload(bytes, length);
    if (const auto runs = parse_runs(*request, payload)) {
      const auto again = runs_payload(request->offset, runs->runs, runs->bytes);
      if (again.size() != length || std::memcmp(again.data(), bytes, length) != 0) std::abort();
    }
    if (const auto open = parse_open(payload)) {
      const auto again = open_payload(*open);
      if (again.size() != length || std::memcmp(again.data(), bytes, length) != 0) std::abort();
    }
    bytes += length;
    size -= length;
  }
  return 0;
}
