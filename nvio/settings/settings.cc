#include "settings.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "../system/real.h"
#include "nearest.h"

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
constexpr Word<Writes> kWrites[] = {
    {"sync", Writes::sync}, {"async", Writes::async}, {"async-manager", Writes::async_manager}};
constexpr Word<Spread> kSpread[] = {{"striped", Spread::striped}, {"parts", Spread::parts}};
constexpr Word<Connections> kConnections[] = {{"auto", Connections::automatic},
                                              {"direct", Connections::direct},
                                              {"relayed", Connections::relayed}};
constexpr Word<Statistics> kStatistics[] = {{"job", Statistics::job}, {"ranks", Statistics::ranks}};
constexpr Word<StoreKind> kKind[] = {{"auto", StoreKind::automatic},
                                     {"tmpfs", StoreKind::tmpfs},
                                     {"file", StoreKind::file},
                                     {"pmem", StoreKind::pmem},
                                     {"simulated", StoreKind::simulated}};

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

constexpr std::uint32_t kDay = 86400;  // seconds

constexpr std::uint32_t kMostNanoseconds = 1'000'000;  // beyond, it is no memory

constexpr const char* kNanoseconds = "nanoseconds, 0 to 1000000";
constexpr const char* kOnOff = "on or off";
constexpr const char* kSize = "a size (64K, 1 MiB, 4096)";
constexpr const char* kFolder = "the absolute path of a folder";

// One row a setting that a single file may have: its name in hints; NVIO_ and upper case in the
// environment; as it stands in the configuration file.
struct FileRow {
  const char* name;
  const char* values;
  bool (*set)(FileSettings&, std::string_view);
};
constexpr FileRow kFileRows[] = {
    {"cache", kOnOff,
     [](FileSettings& s, std::string_view v) { return choose(v, kSwitch, s.enabled); }},
    {"admit", "auto, always or never",
     [](FileSettings& s, std::string_view v) { return choose(v, kAdmit, s.admit); }},
    {"sync", "store or file",
     [](FileSettings& s, std::string_view v) { return choose(v, kSync, s.sync); }},
    {"close", "visible or durable",
     [](FileSettings& s, std::string_view v) { return choose(v, kClose, s.close); }},
    {"prefetch", "none or whole",
     [](FileSettings& s, std::string_view v) { return choose(v, kPrefetch, s.prefetch); }},
    {"write", "sync, async or async-manager",
     [](FileSettings& s, std::string_view v) { return choose(v, kWrites, s.writes); }},
    {"unique", kOnOff,
     [](FileSettings& s, std::string_view v) { return choose(v, kSwitch, s.unique); }},
    {"spread", "striped or parts",
     [](FileSettings& s, std::string_view v) { return choose(v, kSpread, s.spread); }},
    {"bypass_size", kSize,
     [](FileSettings& s, std::string_view v) { return set_size(v, s.bypass_size); }},
    {"stripe", "auto, or a size up to 4G",
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
  const char* values;
  bool (*set)(Settings&, std::string_view);
};
constexpr ProcessRow kProcessRows[] = {
    {"store", kFolder,
     [](Settings& s, std::string_view v) {
       s.store = v;
       return !v.empty() && v.front() == '/';
     }},
    {"store_kind", "auto, tmpfs, file, pmem or simulated",
     [](Settings& s, std::string_view v) { return choose(v, kKind, s.kind); }},
    {"simulated_access", kNanoseconds,
     [](Settings& s, std::string_view v) {
       return set_number(v, kMostNanoseconds, s.simulated.access_ns);
     }},
    {"simulated_flush", kNanoseconds,
     [](Settings& s, std::string_view v) {
       return set_number(v, kMostNanoseconds, s.simulated.flush_ns);
     }},
    {"simulated_bandwidth", "bytes a second, as a size (9500M)",
     [](Settings& s, std::string_view v) {
       return set_size(v, s.simulated.bytes_per_second) && s.simulated.bytes_per_second > 0;
     }},
    {"capacity", kSize, [](Settings& s, std::string_view v) { return set_size(v, s.capacity); }},
    {"session", "at most 100 letters, digits, dots, hyphens and underscores",
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
    {"sigterm", kOnOff,
     [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.flush_at_sigterm); }},
    {"nodes", "a number from 1 to 4096",
     [](Settings& s, std::string_view v) {
       return set_number(v, kMaxNodes, s.nodes) && s.nodes > 0;
     }},
    {"node", "a number from 0 to 4095",
     [](Settings& s, std::string_view v) {
       std::uint32_t node = 0;
       if (!set_number(v, kMaxNodes - 1, node)) return false;
       s.node = node;
       return true;
     }},
    {"connections", "auto, direct or relayed",
     [](Settings& s, std::string_view v) { return choose(v, kConnections, s.connections); }},
    {"rendezvous", kFolder,
     [](Settings& s, std::string_view v) {
       s.rendezvous = v;
       return !v.empty() && v.front() == '/';
     }},
    {"address", "a name or an address",
     [](Settings& s, std::string_view v) {
       s.address = v;
       return !v.empty();
     }},
    {"patience", "seconds, 1 to 86400",
     [](Settings& s, std::string_view v) {
       return set_number(v, kDay, s.patience) && s.patience > 0;
     }},
    {"silence", "seconds, 12 to 86400",
     [](Settings& s, std::string_view v) {
       return set_number(v, kDay, s.silence) && s.silence >= kLeastSilence;
     }},
    {"disable", kOnOff,
     [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.disabled); }},
    {"one_node", kOnOff,
     [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.one_node); }},
    {"stats", "off, job or ranks",
     [](Settings& s, std::string_view v) {
       bool on = false;
       if (!choose(v, kSwitch, on)) return choose(v, kStatistics, s.statistics);
       s.statistics = on ? Statistics::job : Statistics::off;
       return true;
     }},
    {"quiet", kOnOff, [](Settings& s, std::string_view v) { return choose(v, kSwitch, s.quiet); }},
};

std::string variable_name(std::string_view name) {
  std::string variable = "NVIO_";
  for (const char c : name) {
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

template <typename Row>
std::string no_value(const Row& row, std::string_view value) {
  return "\"" + std::string(value) + "\" is no value for " + row.name + ", which takes " +
         row.values;
}

// Calls refuse(sentence) for each value that is none, which then changes nothing.
template <typename Refuse>
void apply(Settings& settings, const Lookup& lookup, Refuse&& refuse) {
  for (const auto& row : kProcessRows) {
    Settings changed = settings;
    if (const auto value = lookup(row.name)) {
      if (row.set(changed, *value)) {
        settings = changed;
      } else {
        refuse(row.name, no_value(row, *value));
      }
    }
  }
  for (const auto& row : kFileRows) {
    if (const auto value = lookup(row.name); value && !row.set(settings.file, *value)) {
      refuse(row.name, no_value(row, *value));
    }
  }
}

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// " (did you mean X?)", or nothing.
std::string meant(std::string_view name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  return near.empty() ? "" : " (did you mean " + near + "?)";
}

}  // namespace

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const auto& row : kFileRows) names.emplace_back(row.name);
  for (const auto& row : kProcessRows) names.emplace_back(row.name);
  return names;
}

std::string about_setting(const std::string& name, const std::vector<std::string>& known) {
  if (is_among(known, name)) return {};
  return "there is no setting \"" + name + "\"" + meant(name, known);
}

std::string about_value(const std::string& name, const std::string& value) {
  Settings unused;
  std::string sentence;
  apply(
      unused,
      [&](const std::string& asked) { return asked == name ? std::optional(value) : std::nullopt; },
      [&](const char*, const std::string& why) { sentence = why; });
  return sentence;
}

std::string about_variable(const std::string& variable) {
  std::vector<std::string> known;
  for (const std::string& name : setting_names()) known.push_back(variable_name(name));
  for (const char* other : {"config", "record", "prefix", "site_store", "epilog_seconds"}) {
    known.push_back(variable_name(other));
  }
  known.emplace_back(kStatsFolder);
  if (is_among(known, variable)) return {};
  return "there is no variable " + variable + meant(variable, known);
}

std::string about_hint(const std::string& key) {
  constexpr std::string_view kPrefix = "nvio_";
  if (!key.starts_with(kPrefix)) return {};
  std::vector<std::string> known;
  for (const auto& row : kFileRows) known.push_back(std::string(kPrefix) + row.name);
  if (is_among(known, key)) return {};
  const std::string name = key.substr(kPrefix.size());
  if (is_among(setting_names(), name)) {
    return key + " is no hint: it is decided for the whole process, by " + variable_name(name);
  }
  return "there is no hint " + key + meant(key, known);
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
    const std::string where = "configuration file, line " + std::to_string(number) + ": ";
    if (equals == std::string_view::npos) {
      settings.complaints.push_back(where + "\"" + std::string(line) + "\" is not name = value");
    } else if (const std::string unknown = about_setting(key, setting_names()); !unknown.empty()) {
      settings.unknown.push_back(where + unknown);
    } else {
      config[key] = std::string(trimmed(line.substr(equals + 1)));
    }
  }
  apply(
      settings,
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = config.find(name);
        return found == config.end() ? std::nullopt : std::optional(found->second);
      },
      [&](const char*, const std::string& why) {
        settings.complaints.push_back("configuration file: " + why);
      });
  apply(
      settings, [&](const std::string& name) { return environment(variable_name(name)); },
      [&](const char* name, const std::string& why) {
        settings.complaints.push_back(variable_name(name) + ": " + why);
      });
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
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string name(*variable, std::strcspn(*variable, "="));
    if (!name.starts_with("NVIO_")) continue;
    if (std::string sentence = about_variable(name); !sentence.empty()) {
      settings.unknown.push_back(std::move(sentence));
    }
  }
  return settings;
}

std::string put_into_environment(const std::string& option, const std::string& name,
                                 const std::string& value) {
  if (const std::string why = about_value(name, value); !why.empty()) return option + ": " + why;
  return setenv(variable_name(name).c_str(), value.c_str(), 1) == 0 ? "" : failed(option);
}

FileSettings apply_hints(FileSettings base, const Lookup& hint,
                         std::vector<std::string>& complaints) {
  for (const auto& row : kFileRows) {
    const std::string key = std::string("nvio_") + row.name;
    const auto value = hint(key);
    if (value && !row.set(base, *value)) {
      complaints.push_back("hint " + key + ": " + no_value(row, *value));
    }
  }
  if (const auto unit = hint("striping_unit")) set_stripe(*unit, base.striping_unit);
  return base;
}

}  // namespace nvio
