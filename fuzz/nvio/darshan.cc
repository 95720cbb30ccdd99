// Any bytes as what read_log.py prints of a Darshan log: what becomes of them may be refused, but
// holds what a replay and a picture rest on, and nothing may crash.
#include <cstdlib>

#include "darshan/job.h"
#include "picture/heat_map.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace nvio;
  const JobTrace job = job_of(parse_darshan({reinterpret_cast<const char*>(data), size}));
  for (const auto& calls : job.ranks) {
    std::uint64_t last = 0;
    for (const TraceCall& call : calls) {
      if (call.file >= job.files.size() || call.start < last) std::abort();
      if (call.start > kMostTime || call.duration > kMostTime) std::abort();
      if ((call.kind <= TraceKind::collective) != (call.ranks != 0)) std::abort();
      last = call.start;
    }
  }
  if (heat_map(job, "job").size() > 1'000'000) std::abort();
  return 0;
}
