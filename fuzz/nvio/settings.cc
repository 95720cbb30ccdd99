// Any text as a configuration file, an environment value and a size.
#include "settings/settings.h"

#include <cstdlib>
#include <optional>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const nvio::Settings settings = nvio::read_settings(
      [&](const std::string&) { return std::optional<std::string>(text); }, text);
  if (settings.session.find('/') != std::string::npos) std::abort();
  nvio::apply_hints(settings.file, [&](const std::string&) { return std::optional(text); });
  if (const auto bytes = nvio::parse_size(text); bytes && *bytes > INT64_MAX) std::abort();
  return 0;
}
