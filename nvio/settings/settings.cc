#include "settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <map>

#include "../posix/real.h"

namespace nvio {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return text;
}

template <typename Value>
struct Word {
  const char* text;
  Value value;
};

constexpr Word<bool> kSwitch[] = {{"1", true},  {"on", true},   {"yes", true}, {"true", true},
                                  {"0", false}, {"off", false}, {"no", false}, {"false", false}};
constexpr Word<Admit> kAdmit[] = {
    {"auto", Admit::automatic}, {"always", Admit::always}, {"never", Admit::never}};
constexpr Word<SyncTo> kSync[] = {{"store", SyncTo::store}, {"file", SyncTo::file}};
constexpr Word<Close> kClose[] = {{"visible", Close::visible}, {"durable", Close::durable}};
constexpr Word<Prefetch> kPrefetch[] = {{"none", Prefetch::none}, {"whole", Prefetch::whole}};
constexpr Word<Writes> kWrites[] = {{"sync", Writes::sync}, {"async", Writes::async}};
constexpr Word<Spread> kSpread[] = {{"striped", Spread::striped}, {"parts", Spread::parts}};
constexpr Word<StoreKind> kKind[] = {{"auto", StoreKind::automatic},
                                     {"tmpfs", StoreKind::tmpfs},
                                     {"file", StoreKind::file},
                                     {"pmem", StoreKind::pmem}};

// Sets `target` to the value that `text` names; false (and no change) when none does.
template <typename Value, std::size_t N>
bool choose(std::string_view text, const Word<Value> (&words)[N], Value& target) {
  for (const auto& word : words) {
    if (text == word.text) {
      target = word.value;
      return true;
    }
  }
  return false;
}

bool set_size(std::string_view text, std::uint64_t& target) {
  const auto size = parse_size(text);
  if (size) target = *size;
  return size.has_value();
}

bool set_stripe(std::string_view text, std::uint64_t& target) {
  const auto size = parse_size(text);
  if (!size || *size == 0 || *size > kMostStripe) return false;
  target = *size;
  return true;
}

// One row a setting that a single file may have: its name in hints; NVIO_ and upper case in the
// environment; as it stands in the configuration file.
struct FileRow {
  const char* name;
  bool (*set)(FileSettings&, std::string_view);
};
constexpr FileRow kFileRows[] = {
    {"cache", [](FileSettings& s, std::string_view v) { return choose(v, kSwitch, s.enabled); }},
    {"admit", [](FileSettings& s, std::string_view v) { return choose(v, kAdmit, s.admit); }},
    {"sync", [](FileSettings& s, std::string_view v) { return choose(v, kSync, s.sync); }},
    {"close", [](FileSettings& s, std::string_view v) { return choose(v, kClose, s.close); }},
    {"prefetch",
     [](FileSettings& s, std::string_view v) { return choose(v, kPrefetch, s.prefetch); }},
    {"write", [](FileSettings& s, std::string_view v) { return choose(v, kWrites, s.writes); }},
    {"spread", [](FileSettings& s, std::string_view v) { return choose(v, kSpread, s.spread); }},
    {"bypass_size", [](FileSettings& s, std::string_view v) { return set_size(v, s.bypass_size); }},
    {"stripe",
     [](FileSettings& s, std::string_view v) {
       if (v != "auto") return set_stripe(v, s.stripe);
       s.stripe = 0;
       return true;
     }},
};

bool set_number(std::string_view text, std::uint32_t most, std::uint32_t& target) {
  std::uint32_t number = 0;
  if (text.empty()) return false;
  for (const char c : text) {
    if (c < '0' || c > '9' || number > most) return false;
    number = number * 10 + static_cast<std::uint32_t>(c - '0');
  }
  if (number > most) return false;
  target = number;
  return true;
}

struct ProcessRow {
  const char* name;
  bool (*set)(Settings&, std::string_view);
};
constexpr ProcessRow kProcessRows[] = {
    {"store",
     [](Settings& s, std::string_view v) {
       s.store = v;
       return !v.empty() && v.front() == '/';
     }},
    {"store_kind", [](Settings& s, std::string_view v) { return choose(v, kKind, s.kind); }},
    {"capacity", [](Settings& s, std::string_view v) { return set_size(v, s.capacity); }},
    {"session",
     [](Settings& s, std::string_view v) {
       if (v.empty() || v.size() > 100) return false;
       for (const char c : v) {
         if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') {
           return false;
         }
       }
       s.session = v;
       return true;
     }},
    {"sigterm",
     [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.flush_at_sigterm); }},
    {"nodes", [](Settings& s,
                 std::string_view v) { return set_number(v, kMaxNodes, s.nodes) && s.nodes > 0; }},
    {"node",
     [](Settings& s, std::string_view v) {
       std::uint32_t node = 0;
       if (!set_number(v, kMaxNodes - 1, node)) return false;
       s.node = node;
       return true;
     }},
    {"rendezvous",
     [](Settings& s, std::string_view v) {
       s.rendezvous = v;
       return !v.empty() && v.front() == '/';
     }},
    {"address",
     [](Settings& s, std::string_view v) {
       s.address = v;
       return !v.empty();
     }},
    {"disable", [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.disabled); }},
    {"one_node", [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.one_node); }},
    {"stats", [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.statistics); }},
    {"quiet", [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.quiet); }},
};

std::string variable_name(std::string_view name) {
  std::string variable = "NVIO_";
  for (const char c : name) {
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

void apply(Settings& settings, const Lookup& lookup, const std::string& where) {
  const auto refuse = [&](const char* name, const std::string& value) {
    settings.complaints.push_back(where + ": \"" + value + "\" is no value for " + name +
                                  "; the default stays");
  };
  for (const auto& row : kProcessRows) {
    Settings changed = settings;
    if (const auto value = lookup(row.name)) {
      if (row.set(changed, *value)) {
        settings = changed;
      } else {
        refuse(row.name, *value);
      }
    }
  }
  for (const auto& row : kFileRows) {
    if (const auto value = lookup(row.name); value && !row.set(settings.file, *value)) {
      refuse(row.name, *value);
    }
  }
}

bool is_known(const std::string& key) {
  const std::vector<std::string> names = setting_names();
  return std::find(names.begin(), names.end(), key) != names.end();
}

}  // namespace

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const auto& row : kFileRows) names.emplace_back(row.name);
  for (const auto& row : kProcessRows) names.emplace_back(row.name);
  return names;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  text = trimmed(text);
  std::uint64_t number = 0;
  std::size_t digits = 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (; digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0;
       ++digits) {
    const auto digit = static_cast<std::uint64_t>(text[digits] - '0');
    if (number > (kMost - digit) / 10) return std::nullopt;
    number = number * 10 + digit;
  }
  if (digits == 0) return std::nullopt;
  std::string unit;
  for (const char c : trimmed(text.substr(digits))) {
    unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  constexpr struct {
    const char* letter;
    int shift;
  } kUnits[] = {{"k", 10}, {"m", 20}, {"g", 30}, {"t", 40}};
  int shift = -1;
  if (unit.empty() || unit == "b") shift = 0;
  for (const auto& known : kUnits) {
    const std::string letter = known.letter;
    if (unit == letter || unit == letter + "b" || unit == letter + "ib") shift = known.shift;
  }
  if (shift < 0 || number > (kMost >> shift)) return std::nullopt;
  return number << shift;
}

Settings read_settings(const Lookup& environment, std::string_view config_text) {
  Settings settings;
  std::map<std::string, std::string, std::less<>> config;
  std::size_t number = 0;
  while (!config_text.empty()) {
    const std::size_t stop = std::min(config_text.find('\n'), config_text.size());
    std::string_view line = config_text.substr(0, stop);
    line = trimmed(line.substr(0, line.find('#')));
    config_text.remove_prefix(std::min(stop + 1, config_text.size()));
    ++number;
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    const std::string key{trimmed(line.substr(0, std::min(equals, line.size())))};
    if (equals == std::string_view::npos || !is_known(key)) {
      settings.complaints.push_back("configuration file, line " + std::to_string(number) +
                                    ": no such setting: \"" + key + "\"");
      continue;
    }
    config[key] = std::string(trimmed(line.substr(equals + 1)));
  }
  apply(
      settings,
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = config.find(name);
        return found == config.end() ? std::nullopt : std::optional(found->second);
      },
      "configuration file");
  apply(
      settings, [&](const std::string& name) { return environment(variable_name(name)); },
      "environment");
  return settings;
}

Settings read_settings_of_process() {
  std::string text;
  std::string unreadable;
  if (const char* path = std::getenv("NVIO_CONFIG"); path != nullptr && *path != '\0') {
    if (!read_text(path, text)) unreadable = std::string("NVIO_CONFIG: cannot read ") + path;
  }
  Settings settings = read_settings(
      [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
      },
      text);
  if (!unreadable.empty()) settings.complaints.push_back(unreadable);
  return settings;
}

FileSettings apply_hints(FileSettings base, const Lookup& hint) {
  for (const auto& row : kFileRows) {
    if (const auto value = hint(std::string("nvio_") + row.name)) row.set(base, *value);
  }
  if (const auto unit = hint("striping_unit")) set_stripe(*unit, base.striping_unit);
  return base;
}

}  // namespace nvio
