#include "command.h"

#include <CLI/CLI.hpp>
#include <cmath>

namespace tare::probe {

Option Option::required() const { return Option(option_->required()); }

Option Option::within(uint64_t least, uint64_t most) const {
  return Option(option_->check(CLI::Range(least, most)));
}

Option Option::share() const {
  return Option(option_->check(CLI::Range(0.0, std::nextafter(1.0, 0.0))));
}

Option Option::one_of(const std::vector<std::string>& words) const {
  return Option(option_->check(CLI::IsMember(words)));
}

Command Command::add(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

template <typename T>
Option Command::add(const std::string& name, T& value, const std::string& description,
                    const std::string& shown) const {
  return Option(app_->add_option(name, value, description)->option_text(shown));
}

template Option Command::add(const std::string&, std::string&, const std::string&,
                             const std::string&) const;
template Option Command::add(const std::string&, std::vector<std::string>&, const std::string&,
                             const std::string&) const;
template Option Command::add(const std::string&, int64_t&, const std::string&,
                             const std::string&) const;
template Option Command::add(const std::string&, uint16_t&, const std::string&,
                             const std::string&) const;
template Option Command::add(const std::string&, uint32_t&, const std::string&,
                             const std::string&) const;
template Option Command::add(const std::string&, double&, const std::string&,
                             const std::string&) const;
template Option Command::add(const std::string&, uint64_t&, const std::string&,
                             const std::string&) const;

void Command::add_flag(const std::string& name, bool& value, const std::string& description) const {
  app_->add_flag(name, value, description);
}

bool Command::has(const std::string& option) const { return app_->count(option) > 0; }

void Command::calls(const std::function<void()>& run) const { app_->callback(run); }

}  // namespace tare::probe
