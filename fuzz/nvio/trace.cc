// Any bytes as a trace of nvio record, and any other bytes as a calibration: what is accepted must
// keep its own promises, and nothing may crash.
#include <cstdlib>

#include "predict/calibration.h"
#include "record/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace nvio;
  const Trace trace = read_trace({reinterpret_cast<const std::byte*>(data), size});
  if (!trace.problem.empty() && (!trace.calls.empty() || trace.complete)) std::abort();
  for (const TraceCall& call : trace.calls) {
    if (call.kind != TraceKind::end && !trace.files.contains(call.file)) std::abort();
    if (call.offset > kMostOffset || call.length > kMostOffset) std::abort();
    if (call.kind <= TraceKind::end) continue;
    // A view's first and last runs are as good as any: a hostile one may have a thousand million.
    View::Walk walk(trace.views.at(call.ranks), call.offset, call.length);
    std::vector<FileRun> runs;
    if (walk.next(runs, 100) == 0 || runs.front().offset > kMostOffset) std::abort();
  }
  Calibration calibration;
  std::string problem;
  if (parse_calibration({reinterpret_cast<const char*>(data), size}, calibration, problem) &&
      calibration.points.size() < kWays) {
    std::abort();
  }
  return 0;
}
