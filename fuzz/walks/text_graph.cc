// Any bytes as a Matrix Market file and as an edge list: edges within bounds, or a TextError that
// names a line. The first byte chooses the options.
#include "text_graph.h"

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "header.h"

namespace {

void read(std::unique_ptr<walks::TextGraph> (*reader)(std::istream&, const walks::TextOptions&),
          const std::string& text, const walks::TextOptions& options) {
  // A short text can declare, and an array then must have, any number of entries.
  constexpr int kMostEdges = 100000;
  std::istringstream stream(text);
  std::int64_t line = 0;
  try {
    const auto graph = reader(stream, options);
    for (int i = 0; i < kMostEdges; ++i) {
      const auto edge = graph->next();
      if (!edge) return;
      const auto limit =
          graph->vertices().value_or(static_cast<std::int64_t>(walks::kMostVertices));
      if (edge->from < 0 || edge->from >= limit || edge->to < 0 || edge->to >= limit) std::abort();
      if (edge->line < line) std::abort();
      line = edge->line;
    }
  } catch (const walks::TextError& error) {
    if (error.line() < line) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const walks::TextOptions options{.undirected = (data[0] & 1) != 0,
                                   .ignore_weights = (data[0] & 2) != 0,
                                   .first_vertex = (data[0] & 4) != 0 ? 0 : 1};
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  read(walks::read_matrix_market, text, options);
  read(walks::read_edge_list, text, options);
  read(walks::read_text_graph, text, options);
  return 0;
}
