// Graphs on their way into matrix files: from text, or generated; and back into text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "matrix_file.h"
#include "power.h"
#include "random_graph.h"
#include "team.h"
#include "text_graph.h"

namespace walks {

// What to do with an edge that a text has twice.
enum class Duplicates { refuse, sum, one };

struct ImportRequest {
  TextOptions text;
  Duplicates duplicates = Duplicates::refuse;
  bool no_loops = false;      // edges from a vertex to itself are left out
  bool saturate = false;      // a weight that does not fit its cell is cut to what does
  std::string for_lists;      // an option that was given and is for edge lists alone, if any
  std::int64_t vertices = 0;  // 0: as declared, or the largest vertex of an edge list
  std::uint32_t cell = 1;
  std::uint64_t tile = 0;
};

struct ImportSummary {
  std::uint64_t vertices = 0;
  std::uint64_t edges = 0;  // cells that are not zero
};

// Whether the file begins like a walks matrix. Collective. AgreedError if it cannot be read.
bool is_matrix(Team& team, const std::string& path);

// Collective. The text is read once by every rank for each strip of rows that the rank fills, and
// once more to count the vertices of an edge list: memory is bounded, whatever the text's length.
// Returns the still open matrix; errors name the text's line.
MatrixFile import_text(Team& team, const std::string& text_path, const std::string& path,
                       const ImportRequest& request, const Access& access, ImportSummary& summary);

// Collective.
MatrixFile generate(Team& team, const RandomGraph& graph, const std::string& path,
                    const Header& header, const Access& access, ImportSummary& summary);

// Collective: the matrix as Matrix Market text (coordinate, integer, general), with `no_loops`
// without its diagonal.
void export_text(Team& team, MatrixFile& matrix, const std::string& path, const Access& access,
                 bool no_loops);

// Throws std::runtime_error unless the file system of `path` has room for a matrix of n * n cells.
void require_room(const std::string& path, std::uint64_t n, std::uint32_t cell);

}  // namespace walks
