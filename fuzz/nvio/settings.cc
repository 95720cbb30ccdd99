// Any text as a configuration file, an environment value and a size.
#include "settings/settings.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const nvio::Settings settings = nvio::read_settings(
      [&](const std::string&) { return std::optional<std::string>(text); }, text);
  if (settings.session.find('/') != std::string::npos) std::abort();
  std::vector<std::string> complaints;
  const auto hint = [&](const std::string&) { return std::optional(text); };
  nvio::apply_hints(settings.file, hint, complaints);
  nvio::about_hint(text);
  nvio::about_variable(text);
  if (const auto bytes = nvio::parse_size(text); bytes && *bytes > INT64_MAX) std::abort();
  return 0;
}
