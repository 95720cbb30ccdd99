#include "text_lines.h"

#include <charconv>
#include <cmath>

namespace walks {

std::string quoted(std::string_view field) {
  constexpr std::size_t kMost = 40;
  std::string text = "\"";
  for (const char c : field.substr(0, kMost)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (field.size() > kMost ? "…\"" : "\"");
}

bool Lines::next() {
  line_.clear();
  std::streambuf* const bytes = text_.rdbuf();
  int c = bytes->sbumpc();
  if (c == std::char_traits<char>::eof()) return false;
  ++number_;
  for (; c != std::char_traits<char>::eof() && c != '\n'; c = bytes->sbumpc()) {
    if (line_.size() == kLongestLine) {
      refuse("the line is longer than " + std::to_string(kLongestLine) +
             " bytes; is this a text file?");
    }
    line_.push_back(static_cast<char>(c));
  }
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  return true;
}

std::vector<std::string_view> Lines::fields(bool commas) const {
  const char* const separators = commas ? " \t," : " \t";
  const std::string_view line = line_;
  std::vector<std::string_view> fields;
  std::size_t at = line.find_first_not_of(separators);
  while (at != std::string_view::npos) {
    const std::size_t end = line.find_first_of(separators, at);
    fields.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(separators, end);
  }
  return fields;
}

std::uint64_t Lines::whole(std::string_view field, const char* name, std::uint64_t most) const {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.begin(), field.end(), value);
  if (error == std::errc::result_out_of_range || (error == std::errc{} && value > most)) {
    refuse(std::string(name) + " " + quoted(field) + " is larger than " + std::to_string(most));
  }
  if (error != std::errc{} || end != field.end()) {
    refuse(std::string(name) + " " + quoted(field) + " is not a whole number");
  }
  return value;
}

std::uint64_t Lines::weight(std::string_view field) const {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.begin(), field.end(), value);
  if (error == std::errc{} && end == field.end()) return value;
  double real = 0;
  const auto [real_end, real_error] = std::from_chars(field.begin(), field.end(), real);
  constexpr double kExact =
      9007199254740992.0;  // 2^53: beyond it a real no longer names one integer
  const bool is_real = real_error == std::errc{} && real_end == field.end();
  if (!is_real || !(real >= 0 && real <= kExact) || real != std::floor(real)) {
    refuse("weight " + quoted(field) +
           " is not a whole number of 0 or more; --ignore-weights counts every entry as 1");
  }
  return static_cast<std::uint64_t>(real);
}

}  // namespace walks
