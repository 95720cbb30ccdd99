#include <algorithm>
#include <cctype>

#include "header.h"
#include "text_lines.h"

namespace walks {
namespace {

std::string lower(std::string_view field) {
  std::string text(field);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

class MatrixMarket final : public TextGraph {
 public:
  MatrixMarket(std::istream& text, const TextOptions& options) : lines_(text), options_(options) {
    read_banner();
    read_sizes();
  }

  [[nodiscard]] std::optional<std::int64_t> vertices() const override { return n_; }

  std::optional<Edge> next() override {
    if (mirrored_) {
      const Edge edge = *mirrored_;
      mirrored_.reset();
      return edge;
    }
    while (seen_ < expected_) {
      if (!next_content()) {
        lines_.refuse("the text ends after " + std::to_string(seen_) + " of " +
                      std::to_string(expected_) + " entries");
      }
      ++seen_;
      Edge edge = coordinate_ ? coordinate_entry() : array_entry();
      edge.line = lines_.number();
      if (edge.weight == 0) continue;
      if (options_.ignore_weights) edge.weight = 1;
      if (symmetric_ && edge.from != edge.to) {
        mirrored_ = edge;
        std::swap(mirrored_->from, mirrored_->to);
      }
      return edge;
    }
    if (next_content()) {
      lines_.refuse("there is more after the " + std::to_string(expected_) +
                    " entries that the header declares");
    }
    return std::nullopt;
  }

 private:
  // The next line that is neither empty nor a comment.
  bool next_content() {
    while (lines_.next()) {
      const auto fields = lines_.fields(false);
      if (!fields.empty() && fields[0].front() != '%') return true;
    }
    return false;
  }

  void read_banner() {
    if (!lines_.next()) lines_.refuse("the text is empty");
    const auto fields = lines_.fields(false);
    if (fields.size() != 5 || lower(fields[0]) != "%%matrixmarket" ||
        lower(fields[1]) != "matrix") {
      lines_.refuse("expected \"%%MatrixMarket matrix FORMAT FIELD SYMMETRY\", found " +
                    quoted(lines_.text()));
    }
    const std::string format = lower(fields[2]);
    const std::string field = lower(fields[3]);
    const std::string symmetry = lower(fields[4]);
    if (format != "coordinate" && format != "array") {
      lines_.refuse("format " + quoted(format) + " is neither coordinate nor array");
    }
    if (field != "pattern" && field != "integer" && field != "real") {
      lines_.refuse("field " + quoted(field) + " is not pattern, integer or real");
    }
    if (symmetry != "general" && symmetry != "symmetric") {
      lines_.refuse("symmetry " + quoted(symmetry) + " is neither general nor symmetric");
    }
    coordinate_ = format == "coordinate";
    pattern_ = field == "pattern";
    symmetric_ = symmetry == "symmetric";
    if (pattern_ && !coordinate_) lines_.refuse("an array cannot have the field pattern");
  }

  void read_sizes() {
    if (!next_content()) lines_.refuse("the line with the matrix's size is missing");
    const auto fields = lines_.fields(false);
    const std::size_t wanted = coordinate_ ? 3 : 2;
    if (fields.size() != wanted) {
      lines_.refuse("expected " +
                    std::string(coordinate_ ? "rows, columns and entries" : "rows and columns") +
                    ", found " + quoted(lines_.text()));
    }
    const std::uint64_t rows = lines_.whole(fields[0], "number of rows", kMostVertices);
    const std::uint64_t cols = lines_.whole(fields[1], "number of columns", kMostVertices);
    if (rows != cols) {
      lines_.refuse("a graph's matrix is square; this one has " + std::to_string(rows) +
                    " rows and " + std::to_string(cols) + " columns");
    }
    if (rows == 0) lines_.refuse("the matrix has no rows");
    n_ = static_cast<std::int64_t>(rows);
    const std::uint64_t cells = rows * rows;
    if (coordinate_) {
      expected_ = lines_.whole(fields[2], "number of entries", ~std::uint64_t{0} >> 1);
    } else {
      expected_ = symmetric_ ? (cells + rows) / 2 : cells;
    }
  }

  Edge coordinate_entry() {
    const auto fields = lines_.fields(false);
    if (fields.size() != (pattern_ ? 2U : 3U)) {
      lines_.refuse("expected " +
                    std::string(pattern_ ? "row and column" : "row, column and value") +
                    ", found " + quoted(lines_.text()));
    }
    Edge edge;
    edge.from = index(fields[0], "row");
    edge.to = index(fields[1], "column");
    if (symmetric_ && edge.to > edge.from) {
      lines_.refuse("a symmetric matrix lists its lower triangle only; row " +
                    std::string(fields[0]) + ", column " + std::string(fields[1]) +
                    " lies above the diagonal");
    }
    if (!pattern_ && !options_.ignore_weights) edge.weight = lines_.weight(fields[2]);
    return edge;
  }

  // An array goes down its columns, a symmetric one from the diagonal down.
  Edge array_entry() {
    const auto fields = lines_.fields(false);
    if (fields.size() != 1) lines_.refuse("expected one value, found " + quoted(lines_.text()));
    Edge edge{row_, column_, lines_.weight(fields[0]), 0};
    if (++row_ == n_) row_ = symmetric_ ? ++column_ : (++column_, 0);
    return edge;
  }

  std::int64_t index(std::string_view field, const char* name) const {
    const std::uint64_t number = lines_.whole(field, name, static_cast<std::uint64_t>(n_));
    if (number == 0) lines_.refuse(std::string(name) + " 0: Matrix Market counts from 1");
    return static_cast<std::int64_t>(number) - 1;
  }

  Lines lines_;
  TextOptions options_;
  bool coordinate_ = true;
  bool pattern_ = false;
  bool symmetric_ = false;
  std::int64_t n_ = 0;
  std::uint64_t expected_ = 0;
  std::uint64_t seen_ = 0;
  std::int64_t row_ = 0;  // of an array's next value
  std::int64_t column_ = 0;
  std::optional<Edge> mirrored_;
};

}  // namespace

std::unique_ptr<TextGraph> read_matrix_market(std::istream& text, const TextOptions& options) {
  return std::make_unique<MatrixMarket>(text, options);
}

}  // namespace walks
