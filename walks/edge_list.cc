#include "header.h"
#include "text_lines.h"

namespace walks {
namespace {

class EdgeList final : public TextGraph {
 public:
  EdgeList(std::istream& text, const TextOptions& options) : lines_(text), options_(options) {}

  [[nodiscard]] std::optional<std::int64_t> vertices() const override { return std::nullopt; }

  std::optional<Edge> next() override {
    if (mirrored_) {
      const Edge edge = *mirrored_;
      mirrored_.reset();
      return edge;
    }
    while (lines_.next()) {
      const auto fields = lines_.fields(true);
      if (fields.empty() || fields[0].front() == '#' || fields[0].front() == '%') continue;
      if (fields.size() < 2 || fields.size() > 3) {
        lines_.refuse("expected two vertices and perhaps a weight, found " +
                      std::to_string(fields.size()) + " fields in " + quoted(lines_.text()));
      }
      Edge edge;
      edge.line = lines_.number();
      edge.from = vertex(fields[0]);
      edge.to = vertex(fields[1]);
      if (fields.size() == 3 && !options_.ignore_weights) edge.weight = lines_.weight(fields[2]);
      if (options_.undirected && edge.from != edge.to) {
        mirrored_ = edge;
        std::swap(mirrored_->from, mirrored_->to);
      }
      return edge;
    }
    return std::nullopt;
  }

 private:
  std::int64_t vertex(std::string_view field) const {
    const auto first = static_cast<std::uint64_t>(options_.first_vertex);
    const std::uint64_t number = lines_.whole(field, "vertex", kMostVertices - 1 + first);
    if (number < first) {
      lines_.refuse("vertex 0, but the list's first vertex is 1; --first-vertex 0 counts from 0");
    }
    return static_cast<std::int64_t>(number - first);
  }

  Lines lines_;
  TextOptions options_;
  std::optional<Edge> mirrored_;
};

}  // namespace

std::unique_ptr<TextGraph> read_edge_list(std::istream& text, const TextOptions& options) {
  return std::make_unique<EdgeList>(text, options);
}

std::unique_ptr<TextGraph> read_text_graph(std::istream& text, const TextOptions& options) {
  // A Matrix Market file begins with %%; an edge list's comment rarely does, and what does not go
  // on with MatrixMarket is refused by that reader with a sentence.
  if (text.peek() == '%') {
    text.get();
    const bool market = text.peek() == '%';
    text.unget();
    if (market) return read_matrix_market(text, options);
  }
  return read_edge_list(text, options);
}

}  // namespace walks
