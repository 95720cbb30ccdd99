// Lines and numbers of a text, for the readers of text graphs.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "text_graph.h"

namespace walks {

// A longer line is no graph: it bounds the memory that a hostile or binary file can ask for.
inline constexpr std::size_t kLongestLine = 4096;

class Lines {
 public:
  explicit Lines(std::istream& text) : text_(text) {}

  // Reads the next line, without its line end; false at the end of the text.
  bool next();

  [[nodiscard]] const std::string& text() const { return line_; }
  [[nodiscard]] std::int64_t number() const { return number_; }

  // The line's fields, between blanks, tabs, and (if allowed) commas.
  [[nodiscard]] std::vector<std::string_view> fields(bool commas) const;

  [[noreturn]] void refuse(const std::string& what) const { throw TextError(number_, what); }

  // A whole number from 0 to `most`; `name` says what it is in the error.
  [[nodiscard]] std::uint64_t whole(std::string_view field, const char* name,
                                    std::uint64_t most) const;

  // A weight: a whole number, perhaps written as a real ("2", "2.0", "1e3").
  [[nodiscard]] std::uint64_t weight(std::string_view field) const;

 private:
  std::istream& text_;
  std::string line_;
  std::int64_t number_ = 0;
};

// The field between quotation marks, cut short and with unprintable bytes replaced.
[[nodiscard]] std::string quoted(std::string_view field);

}  // namespace walks
