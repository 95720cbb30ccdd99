#include "import.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include "cells.h"
#include "grid.h"

namespace walks {
namespace {

std::ifstream open_text(const std::string& path) {
  std::ifstream text(path, std::ios::binary);
  if (!text) throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
  return text;
}

std::int64_t count_vertices(const std::string& path, const TextOptions& options) {
  std::ifstream text = open_text(path);
  const auto graph = read_text_graph(text, options);
  if (const auto declared = graph->vertices()) return *declared;
  std::int64_t most = 0;
  while (const auto edge = graph->next()) most = std::max({most, edge->from + 1, edge->to + 1});
  if (most == 0) throw std::runtime_error(path + " has no edges");
  return most;
}

// Whether the cell had to be cut.
bool add_edge(const Edge& edge, const ImportRequest& request, std::uint64_t number_of_first,
              std::byte* cells, std::int64_t index) {
  const std::uint64_t before = get_cell(cells, request.cell, index);
  const auto name = [&] {
    return "edge " + std::to_string(static_cast<std::uint64_t>(edge.from) + number_of_first) +
           " -> " + std::to_string(static_cast<std::uint64_t>(edge.to) + number_of_first);
  };
  if (before != 0 && request.duplicates == Duplicates::refuse) {
    throw TextError(edge.line, name() +
                                   " stands here for the second time; --duplicates sum adds such "
                                   "edges up, --duplicates one counts them once");
  }
  if (before != 0 && request.duplicates == Duplicates::one) return false;
  const std::uint64_t most = largest(request.cell);
  const bool cut = edge.weight > most - before;
  if (cut && !request.saturate) {
    throw TextError(edge.line, name() + " has a weight that does not fit a cell of " +
                                   std::to_string(request.cell) + " byte(s)" +
                                   (request.cell < 8 ? "; walks convert --cell " +
                                                           std::to_string(request.cell * 2) +
                                                           " makes a matrix of wider cells"
                                                     : ""));
  }
  set_cell(cells, request.cell, index, cut ? most : before + edge.weight);
  return cut;
}

bool fill_strip(const std::string& path, const ImportRequest& request, std::int64_t n,
                std::uint64_t number_of_first, const Region& region, std::byte* cells) {
  std::ifstream text = open_text(path);
  const auto graph = read_text_graph(text, request.text);
  bool cut = false;
  while (const auto edge = graph->next()) {
    if (edge->from >= n || edge->to >= n) {
      throw TextError(
          edge->line,
          "vertex " +
              std::to_string(static_cast<std::uint64_t>(std::max(edge->from, edge->to)) +
                             number_of_first) +
              " in a graph of " + std::to_string(n) + " vertices");
    }
    if (edge->from < region.row0 || edge->from >= region.row1) continue;
    if (request.no_loops && edge->from == edge->to) continue;
    cut |=
        add_edge(*edge, request, number_of_first, cells, (edge->from - region.row0) * n + edge->to);
  }
  return cut;
}

std::uint64_t nonzero(const std::byte* cells, std::uint32_t cell, std::int64_t count) {
  return with_cell(cell, [&](auto zero) {
    using Cell = decltype(zero);
    const auto* const values = reinterpret_cast<const Cell*>(cells);
    return static_cast<std::uint64_t>(count - std::count(values, values + count, zero));
  });
}

}  // namespace

bool is_matrix(Team& team, const std::string& path) {
  int answer = 0;
  team.guard(Phase::open, [&] {
    if (!team.leads()) return;
    // What comes out of a pipe is gone once it is read: the graph would lack its first edges, or
    // all.
    std::error_code missing;
    const auto status = std::filesystem::status(path, missing);
    if (exists(status) && !is_regular_file(status)) {
      throw std::runtime_error(path +
                               " is no regular file, and a graph is read more than once: "
                               "write it into one first");
    }
    std::ifstream file = open_text(path);
    std::array<char, 8> start{};
    file.read(start.data(), start.size());
    if (file.gcount() == 0) {
      throw std::runtime_error(path + (file.bad() ? " cannot be read" : " is empty"));
    }
    answer = looks_like_matrix(std::as_bytes(std::span(start))) ? 1 : 0;
  });
  team.agree();
  MPI_Bcast(&answer, 1, MPI_INT, 0, team.comm());
  return answer != 0;
}

void require_room(const std::string& path, std::uint64_t n, std::uint32_t cell) {
  const auto slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) {
    throw std::runtime_error("cannot write into " + folder + ": " + std::strerror(errno));
  }
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  const double wanted = static_cast<double>(n) * static_cast<double>(n) * cell;
  if (wanted > free) {
    std::array<char, 200> text{};
    std::snprintf(text.data(), text.size(),
                  "a matrix of %" PRIu64 " x %" PRIu64
                  " cells of %u byte(s) needs %.3g GB; %s has %.3g GB free",
                  n, n, cell, wanted / 1e9, folder.c_str(), free / 1e9);
    throw std::runtime_error(text.data());
  }
}

MatrixFile import_text(Team& team, const std::string& text_path, const std::string& path,
                       const ImportRequest& request, const Access& access, ImportSummary& summary) {
  team.begin("reading " + text_path);
  // Every rank meets the same bad line; TextError's line must survive the agreement.
  const auto read = [&](const auto& action) {
    team.guard(Phase::read, [&] {
      try {
        action();
      } catch (const TextError& error) {
        throw std::runtime_error(text_path + ", line " + std::to_string(error.line()) + ": " +
                                 error.what());
      }
    });
  };
  Header header;
  std::int64_t n = request.vertices;
  read([&] {
    bool market = false;
    {
      std::ifstream text = open_text(text_path);
      market = read_text_graph(text, request.text)->vertices().has_value();
    }
    if (market && !request.for_lists.empty()) {
      throw std::runtime_error(text_path +
                               " is a Matrix Market file, which tells that itself, and " +
                               request.for_lists + " is for edge lists");
    }
    header.first_vertex = market ? 1 : static_cast<std::uint32_t>(request.text.first_vertex);
    if (n == 0) n = count_vertices(text_path, request.text);
    require_room(path, static_cast<std::uint64_t>(n), request.cell);
  });
  team.agree();
  header.n = static_cast<std::uint64_t>(n);
  header.cell = request.cell;
  header.tile = request.tile;
  MatrixFile matrix = MatrixFile::create(team, path, header, false);
  const Strips strips(n, team.size(), n * header.cell, access.memory);
  std::vector<std::byte> cells;
  bool cut = false;
  for (std::int64_t round = 0; round < strips.rounds(); ++round) {
    const Region region = strips.of(team.rank(), round);
    read([&] {
      cells.assign(static_cast<std::size_t>(region.cells() * header.cell), std::byte{0});
      cut |= fill_strip(text_path, request, n, header.first_vertex, region, cells.data());
      summary.edges += nonzero(cells.data(), header.cell, region.cells());
    });
    team.agree();
    matrix.write(region, cells.data(), access.pattern);
    team.agree();
    team.progress(static_cast<double>(round + 1) / static_cast<double>(strips.rounds()));
  }
  MPI_Allreduce(MPI_IN_PLACE, &summary.edges, 1, MPI_UINT64_T, MPI_SUM, team.comm());
  MPI_Allreduce(MPI_IN_PLACE, &cut, 1, MPI_C_BOOL, MPI_LOR, team.comm());
  matrix.set_saturated(cut);
  summary.vertices = header.n;
  return matrix;
}

MatrixFile generate(Team& team, const RandomGraph& graph, const std::string& path,
                    const Header& header, const Access& access, ImportSummary& summary) {
  team.begin("generating " + path);
  team.guard(Phase::open, [&] { require_room(path, header.n, header.cell); });
  team.agree();
  MatrixFile matrix = MatrixFile::create(team, path, header, false);
  const std::int64_t n = matrix.n();
  const Strips strips(n, team.size(), n * (header.cell + 1), access.memory);
  std::vector<std::uint8_t> edges;
  std::vector<std::byte> cells;
  for (std::int64_t round = 0; round < strips.rounds(); ++round) {
    const Region region = strips.of(team.rank(), round);
    team.guard(Phase::compute, [&] {
      edges.resize(static_cast<std::size_t>(region.cells()));
      cells.resize(edges.size() * header.cell);
      graph.fill(region, edges.data());
      const auto* const ones = reinterpret_cast<const std::byte*>(edges.data());
      summary.edges += nonzero(ones, 1, region.cells());
      convert_cells(ones, 1, cells.data(), header.cell, region.cells(), 1);
    });
    matrix.write(region, cells.data(), access.pattern);
    team.agree();
    team.progress(static_cast<double>(round + 1) / static_cast<double>(strips.rounds()));
  }
  MPI_Allreduce(MPI_IN_PLACE, &summary.edges, 1, MPI_UINT64_T, MPI_SUM, team.comm());
  summary.vertices = header.n;
  return matrix;
}

// Rank 0 alone writes text, so it alone reads; it does so by stretches, which is not collective.
void export_text(Team& team, MatrixFile& matrix, const std::string& path, const Access& access,
                 bool no_loops) {
  team.begin("writing " + path);
  matrix.drop_view();
  team.guard(Phase::write, [&] {
    if (!team.leads()) return;
    const std::int64_t n = matrix.n();
    const std::uint32_t cell = matrix.header().cell;
    const auto close = [](std::FILE* file) { std::fclose(file); };
    std::unique_ptr<std::FILE, decltype(close)> text(std::fopen(path.c_str(), "w"), close);
    if (text == nullptr) {
      throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
    }
    const std::int64_t rows = std::clamp<std::int64_t>(
        access.memory / (n * cell), 1, std::max<std::int64_t>(1, (std::int64_t{1} << 28) / n));
    std::vector<std::byte> cells;
    // Two passes: the header states the number of entries.
    std::uint64_t entries = 0;
    for (const bool counting : {true, false}) {
      if (!counting) {
        std::fprintf(text.get(), "%%%%MatrixMarket matrix coordinate integer general\n");
        if (matrix.header().saturated) {
          std::fprintf(text.get(), "%% saturated: %" PRIu64 " stands for that or more\n",
                       largest(cell));
        }
        std::fprintf(text.get(), "%" PRId64 " %" PRId64 " %" PRIu64 "\n", n, n, entries);
      }
      for (std::int64_t row = 0; row < n; row += rows) {
        const Region region{row, std::min(n, row + rows), 0, n};
        cells.resize(static_cast<std::size_t>(region.cells() * cell));
        matrix.read(region, cells.data(), Pattern::block);
        if (no_loops) clear_diagonal(cells.data(), cell, row, region.rows(), n);
        if (counting) {
          entries += nonzero(cells.data(), cell, region.cells());
          continue;
        }
        for (std::int64_t i = 0; i < region.cells(); ++i) {
          const std::uint64_t value = get_cell(cells.data(), cell, i);
          if (value == 0) continue;
          std::fprintf(text.get(), "%" PRId64 " %" PRId64 " %" PRIu64 "\n", row + i / n + 1,
                       i % n + 1, value);
        }
      }
    }
    // Some file systems tell at the close alone that there is no room.
    const bool has_failed = std::ferror(text.get()) != 0;
    if (std::fclose(text.release()) != 0 || has_failed) {
      throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
    }
  });
  team.agree();
}

}  // namespace walks
