// Any bytes as a redo log: the reader must neither crash nor hand out bytes outside its input.
#include <cstdlib>
#include <functional>

#include "recovery/log_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const nvio::ParsedLog log = nvio::read_log(bytes);
  const std::less_equal<> at_most;
  for (const nvio::RedoStep& step : log.steps) {
    const bool inside = step.data.empty() ||
                        (at_most(bytes.data(), step.data.data()) &&
                         at_most(step.data.data() + step.data.size(), bytes.data() + bytes.size()));
    if (!inside || (!log.usable && !log.steps.empty())) std::abort();
  }
  return 0;
}
