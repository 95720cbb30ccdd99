// Words of a command line and what they set, over CLI11. Only command.cc includes its header, which
// takes the compiler some seconds: every cost would pay them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tare::probe {

/// An option of a command. A handle: CLI11 owns what it stands for.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required() const;
  /// Refuses numbers outside of these.
  Option within(uint64_t least, uint64_t most) const;
  /// Refuses what is no share: below 0, or 1 and more.
  Option share() const;
  Option one_of(const std::vector<std::string>& words) const;

 private:
  CLI::Option* option_;
};

/// A command and its options. A handle: the application owns what it stands for.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add(const std::string& name, const std::string& description) const;

  /// Adds an option that sets `value`, which outlives the command. T is std::string, a list of them
  /// or one of double, int64_t, uint16_t, uint32_t, uint64_t. `shown` stands beside its name in the
  /// help.
  template <typename T>
  Option add(const std::string& name, T& value, const std::string& description,
             const std::string& shown) const;
  void add_flag(const std::string& name, bool& value, const std::string& description) const;
  bool has(const std::string& option) const;

  /// Does this once all options are read, where this command is the one that is named.
  void calls(const std::function<void()>& run) const;

 private:
  CLI::App* app_;
};

}  // namespace tare::probe
