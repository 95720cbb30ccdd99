// Readers of graphs as text: Matrix Market files and edge lists. They read a stream once, line by
// line, in constant memory, and know nothing of matrices or files.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace walks {

// What is wrong with the text, and in which line (counted from 1).
class TextError : public std::runtime_error {
 public:
  TextError(std::int64_t line, const std::string& what) : std::runtime_error(what), line_(line) {}
  [[nodiscard]] std::int64_t line() const { return line_; }

 private:
  std::int64_t line_;
};

// An edge between vertices counted from 0, and the line it stands in.
struct Edge {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::uint64_t weight = 1;
  std::int64_t line = 0;
};

struct TextOptions {
  bool undirected = false;      // each edge of an edge list stands for both directions
  bool ignore_weights = false;  // every entry counts 1, whatever its value
  int first_vertex = 1;         // the number of an edge list's first vertex, 0 or 1
};

class TextGraph {
 public:
  virtual ~TextGraph() = default;

  // The next edge, or nothing at the end. A symmetric entry comes as two edges. Throws TextError.
  virtual std::optional<Edge> next() = 0;

  // Vertices that the text declares; nothing for an edge list, which declares none.
  [[nodiscard]] virtual std::optional<std::int64_t> vertices() const = 0;
};

// Matrix Market: coordinate or array; pattern, integer, or real with integer values; general or
// symmetric; square. The header is read, and refused, by the constructor.
std::unique_ptr<TextGraph> read_matrix_market(std::istream& text, const TextOptions& options);

// One edge a line: two vertices and an optional weight, separated by blanks, tabs or one comma.
// Lines that begin with # or % and empty lines are skipped.
std::unique_ptr<TextGraph> read_edge_list(std::istream& text, const TextOptions& options);

// By the first line: %%MatrixMarket, or else an edge list.
std::unique_ptr<TextGraph> read_text_graph(std::istream& text, const TextOptions& options);

}  // namespace walks
