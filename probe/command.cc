#include "command.h"

#include <CLI/CLI.hpp>

namespace tare::probe {

Option Option::Required() const { return Option(option_->required()); }

Option Option::Within(uint64_t least, uint64_t most) const {
  return Option(option_->check(CLI::Range(least, most)));
}

Option Option::OneOf(const std::vector<std::string>& words) const {
  return Option(option_->check(CLI::IsMember(words)));
}

Command Command::Add(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

template <typename T>
Option Command::Add(const std::string& name, T& value, const std::string& description,
                    const std::string& shown) const {
  return Option(app_->add_option(name, value, description)->option_text(shown));
}

template Option Command::Add(const std::string&, std::string&, const std::string&,
                             const std::string&) const;
template Option Command::Add(const std::string&, std::vector<std::string>&, const std::string&,
                             const std::string&) const;
template Option Command::Add(const std::string&, int64_t&, const std::string&,
                             const std::string&) const;
template Option Command::Add(const std::string&, uint16_t&, const std::string&,
                             const std::string&) const;
template Option Command::Add(const std::string&, uint32_t&, const std::string&,
                             const std::string&) const;
template Option Command::Add(const std::string&, double&, const std::string&,
                             const std::string&) const;
template Option Command::Add(const std::string&, uint64_t&, const std::string&,
                             const std::string&) const;

void Command::AddFlag(const std::string& name, bool& value, const std::string& description) const {
  app_->add_flag(name, value, description);
}

bool Command::Has(const std::string& option) const { return app_->count(option) > 0; }

void Command::Do(const std::function<void()>& run) const { app_->callback(run); }

}  // namespace tare::probe
