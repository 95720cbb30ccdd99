#include "commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "bench.h"
#include "doomed_file.h"
#include "output_lock.h"
#include "questions.h"
#include "reference.h"
#include "store.h"

namespace walks {
namespace {

// An error that all ranks find by themselves, alike.
[[noreturn]] void refuse(const std::string& what) { throw AgreedError(what); }

// A graph to read: a matrix file, or a text that was turned into one for the time of the run.
class Graph {
 public:
  Graph(Team& team, const Options& options) : path_(options.graph) {
    if (is_matrix(team, options.graph)) {
      if (!options.for_texts.empty()) {
        refuse(path_ + " is a walks matrix, and " + options.for_texts +
               " is for texts; give it to the walks convert that makes the matrix");
      }
      file_ = std::make_unique<MatrixFile>(MatrixFile::open(team, options.graph));
      return;
    }
    imported_ = std::make_unique<DoomedFile>(name_beside(team, options), team.leads());
    ImportRequest request = options.import;
    request.tile = options.tile.value_or(0);
    // Of others' cells what is written there is the width, if anything is.
    if (options.command == Command::power || options.command == Command::convert) {
      request.cell = options.cell.value_or(1);
    }
    ImportSummary summary;
    MatrixFile matrix =
        import_text(team, options.graph, imported_->path(), request, options.access, summary);
    matrix.finish();
    file_ = std::make_unique<MatrixFile>(MatrixFile::open(team, imported_->path()));
  }

  MatrixFile& file() { return *file_; }
  [[nodiscard]] Json describe() const { return describe_matrix(path_, file_->header()); }

 private:
  // Beside what is written, which all ranks can reach; else beside the text, by a name of this
  // run's own: others may ask about that text meanwhile. Collective.
  static std::string name_beside(Team& team, const Options& options) {
    if (!options.output.empty()) return options.output + ".import";
    std::string name = options.graph + ".import.XXXXXX";
    team.guard(Phase::open, [&] {
      if (!team.leads()) return;
      const int fd = mkstemp(name.data());
      if (fd < 0) {
        throw std::runtime_error("cannot write beside " + options.graph +
                                 ", which becomes a matrix there for the time of the run: " +
                                 std::system_category().message(errno) +
                                 "; make one elsewhere with walks convert, and ask that");
      }
      close(fd);
    });
    team.agree();
    MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, team.comm());
    return name;
  }

  std::string path_;
  std::unique_ptr<DoomedFile> imported_;  // outlives file_
  std::unique_ptr<MatrixFile> file_;
};

// The row of a vertex that the user named by its number.
std::int64_t row_of(std::uint64_t vertex, const Header& header) {
  if (vertex < header.first_vertex || vertex - header.first_vertex >= header.n) {
    refuse("there is no vertex " + std::to_string(vertex) + "; this graph's are " +
           std::to_string(header.first_vertex) + " to " +
           std::to_string(header.n - 1 + header.first_vertex));
  }
  return static_cast<std::int64_t>(vertex - header.first_vertex);
}

// A cut cell is known by being as large as its width allows. In a wider one it would pass for
// exact.
void refuse_wider(const std::string& path, const Header& input, std::uint32_t cell) {
  if (!input.saturated || cell <= input.cell) return;
  refuse(path + " is saturated: cells of it that are " + std::to_string(largest(input.cell)) +
         " may stand for more, which wider cells would not show; keep --cell " +
         std::to_string(input.cell) + ", or make it anew with wider cells");
}

void room_for(Team& team, const std::string& path, std::uint64_t n, std::uint32_t cell) {
  team.guard(Phase::open, [&] { require_room(path, n, cell); });
  team.agree();
}

std::string count(std::uint64_t number, const std::string& one, const std::string& many) {
  return std::to_string(number) + " " + (number == 1 ? one : many);
}

void verify_result(Team& team, Graph& graph, MatrixFile& result, const Options& options,
                   Answer& answer) {
  const Verdict verdict = verify(team, graph.file(), result, options.verify_rows, options.access);
  const Header& header = result.header();
  answer.wrong = verdict.wrong > 0;
  answer.record["verified"] = {{"rows", verdict.rows}, {"wrong_cells", verdict.wrong}};
  if (verdict.wrong == 0) {
    answer.text += "verified: " + count(verdict.rows, "row", "rows") + " equal the reference\n";
    return;
  }
  answer.text += "WRONG: " + count(verdict.wrong, "cell differs", "cells differ") +
                 " from the reference; cell (" + std::to_string(verdict.row + header.first_vertex) +
                 ", " + std::to_string(verdict.col + header.first_vertex) + ") is " +
                 std::to_string(verdict.found) + ", should be " + std::to_string(verdict.expected) +
                 "\n";
}

Answer keep_graph(Team& team, MatrixFile& matrix, const ImportSummary& summary, DoomedFile& partial,
                  const std::string& output) {
  matrix.finish();
  team.guard(Phase::close, [&] { partial.keep_as(output); });
  team.agree();
  Answer answer;
  answer.record["output"] = describe_matrix(output, matrix.header());
  answer.record["edges"] = summary.edges;
  answer.text = output + ": " + count(summary.vertices, "vertex", "vertices") + ", " +
                count(summary.edges, "edge", "edges") + "\n";
  return answer;
}

std::string name_ends(const Options& options, Answer& answer) {
  answer.record["from"] = *options.from;
  answer.record["to"] = *options.to;
  return "from " + std::to_string(*options.from) + " to " + std::to_string(*options.to);
}

// Where only lengths up to some were looked for, to find none says nothing of longer ones.
void tell_length(const Header& lengths, std::uint64_t length, const Options& options,
                 Answer& answer) {
  const bool cut = lengths.saturated && length == largest(lengths.cell);
  answer.text += "shortest walk " + name_ends(options, answer) + ": ";
  answer.record["length"] = length == 0 ? Json() : Json(length);
  answer.record["at_least"] = cut;
  if (length > 0) {
    answer.text += (cut ? "at least " : "") + std::to_string(length) + "\n";
  } else if (lengths.power == 0) {
    answer.text += "none\n";
  } else {
    answer.text += "none up to length " + std::to_string(lengths.power) + "\n";
  }
}

Answer run_generate(Team& team, const Options& options) {
  Header header;
  header.n = options.vertices;
  header.cell = options.cell.value_or(1);
  header.tile = options.tile.value_or(0);
  const RandomGraph graph(options.probability, options.seed, options.import.text.undirected,
                          options.loops);
  DoomedFile partial(options.output + ".partial", team.leads());
  ImportSummary summary;
  MatrixFile matrix = generate(team, graph, partial.path(), header, options.access, summary);
  return keep_graph(team, matrix, summary, partial, options.output);
}

Answer convert_text(Team& team, const Options& options) {
  ImportRequest request = options.import;
  request.cell = options.cell.value_or(1);
  request.tile = options.tile.value_or(0);
  DoomedFile partial(options.output + ".partial", team.leads());
  ImportSummary summary;
  MatrixFile matrix =
      import_text(team, options.graph, partial.path(), request, options.access, summary);
  return keep_graph(team, matrix, summary, partial, options.output);
}

Answer run_convert(Team& team, const Options& options) {
  if (!options.to_market && !is_matrix(team, options.graph)) return convert_text(team, options);
  Graph graph(team, options);
  DoomedFile partial(options.output + ".partial", team.leads());
  Answer answer;
  if (options.to_market) {
    export_text(team, graph.file(), partial.path(), options.access, options.import.no_loops);
    const Header& header = graph.file().header();
    answer.record["output"] = {
        {"path", options.output}, {"format", "matrix-market"}, {"saturated", header.saturated}};
    if (header.saturated) {
      answer.text = std::to_string(largest(header.cell)) + " in it stands for that or more\n";
    }
  } else {
    Header header = graph.file().header();
    header.cell = options.cell.value_or(header.cell);
    header.tile = options.tile.value_or(header.tile);
    refuse_wider(options.graph, graph.file().header(), header.cell);
    room_for(team, options.output, header.n, header.cell);
    team.begin("copying " + options.graph);
    MatrixFile matrix = MatrixFile::create(team, partial.path(), header, false);
    const bool cut = copy(team, graph.file(), matrix, options.access.pattern, options.access.memory,
                          options.import.saturate, options.import.no_loops);
    matrix.set_saturated(header.saturated || cut);
    matrix.finish();
    answer.record["output"] = describe_matrix(options.output, matrix.header());
  }
  team.guard(Phase::close, [&] { partial.keep_as(options.output); });
  team.agree();
  answer.text = "wrote " + options.output + "\n" + answer.text;
  return answer;
}

Answer run_info(Team& team, const Options& options) {
  if (!is_matrix(team, options.graph)) {
    refuse(options.graph + " is not a walks matrix; walks convert turns text into one");
  }
  const MatrixFile matrix = MatrixFile::open(team, options.graph);
  const Header& header = matrix.header();
  Answer answer;
  answer.record["input"] = describe_matrix(options.graph, header);
  answer.text =
      options.graph + ": " +
      (header.kind == Kind::kWalks
           ? "walks of length " + std::to_string(header.power)
           : "shortest walk lengths" +
                 (header.power == 0 ? std::string() : " up to " + std::to_string(header.power))) +
      ", " + count(header.n, "vertex", "vertices") + " from " +
      std::to_string(header.first_vertex) + ", cells of " + count(header.cell, "byte", "bytes") +
      ", " + (header.tile == 0 ? "row-major" : "tiles of " + std::to_string(header.tile)) +
      (header.saturated ? ", saturated" : "") + "\n";
  return answer;
}

Answer run_power(Team& team, const Options& options) {
  if (options.discard && options.verify) refuse("--verify needs the result that --discard removes");
  Graph graph(team, options);
  const Header& input = graph.file().header();
  if (input.kind != Kind::kWalks) refuse(options.graph + " holds lengths, not a graph");
  PowerRequest request;
  request.exponent = options.exponent;
  request.cell = options.cell.value_or(input.cell);
  request.tile = options.tile.value_or(input.tile);
  request.saturate = options.import.saturate;
  request.schedule = options.schedule;
  request.discard = options.discard;
  refuse_wider(options.graph, input, request.cell);
  room_for(team, options.output, input.n, request.cell);
  const auto products = raise(team, graph.file(), request, options.access, options.output);
  Answer answer;
  answer.record["input"] = graph.describe();
  answer.record["power"] = input.power * options.exponent;
  answer.record["cell"] = request.cell;
  answer.record["tile"] = request.tile;
  answer.record["schedule"] = options.schedule == Schedule::steps ? "steps" : "squaring";
  answer.record["discarded"] = options.discard;
  answer.record["products"] = Json::array();
  for (const ProductRecord& product : products) {
    Json json;
    json["power"] = input.power * product.exponent;
    json["seconds"] = product.seconds;
    json["ranks"] = gather_tallies(team, product.tally);
    answer.record["products"].push_back(std::move(json));
  }
  answer.text = (options.discard ? "discarded" : "wrote " + options.output) + ": power " +
                std::to_string(input.power * options.exponent) + " of " + options.graph + "\n";
  if (options.discard) return answer;
  MatrixFile result = MatrixFile::open(team, options.output);
  answer.record["output"] = describe_matrix(options.output, result.header());
  if (result.header().saturated) {
    answer.text += "some cells are saturated: they stand for " +
                   std::to_string(largest(request.cell)) + " or more\n";
  }
  if (options.verify) verify_result(team, graph, result, options, answer);
  return answer;
}

Answer run_paths(Team& team, const Options& options) {
  Graph graph(team, options);
  const Header& input = graph.file().header();
  if (input.kind != Kind::kWalks || input.power != 1) {
    refuse(options.graph + " is not a graph but a power or lengths of one");
  }
  if (options.from.has_value() != options.to.has_value()) {
    refuse("--from and --to go together");
  }
  const std::int64_t from = options.from ? row_of(*options.from, input) : 0;
  const std::int64_t to = options.to ? row_of(*options.to, input) : 0;
  const std::uint32_t cell = options.cell.value_or(2);
  room_for(team, options.output, input.n, cell);
  const LengthsSummary summary =
      shortest_lengths(team, graph.file(), options.longest, cell, options.tile.value_or(input.tile),
                       options.access, options.output);
  Answer answer;
  answer.record["input"] = graph.describe();
  answer.record["connected_pairs"] = summary.connected;
  answer.record["longest"] = summary.longest;
  answer.record["products"] = summary.products;
  answer.record["complete"] = summary.complete;
  answer.text = "wrote " + options.output + ": " +
                count(summary.connected, "ordered pair", "ordered pairs") + " connected, longest " +
                std::to_string(summary.longest) +
                (summary.complete ? "\n" : "; longer walks were not looked for (--longest)\n");
  MatrixFile result = MatrixFile::open(team, options.output);
  answer.record["output"] = describe_matrix(options.output, result.header());
  if (options.from) {
    tell_length(result.header(), walks_between(team, result, 1, from, to, options.access), options,
                answer);
  }
  if (options.verify) verify_result(team, graph, result, options, answer);
  return answer;
}

Answer run_triangles(Team& team, const Options& options) {
  Graph graph(team, options);
  if (graph.file().header().kind != Kind::kWalks || graph.file().header().power != 1) {
    refuse(options.graph + " is not a graph but a power or lengths of one");
  }
  if (graph.file().header().saturated) {
    refuse(options.graph +
           " is saturated: some of its weights stand for more, and no count is exact");
  }
  const bool undirected = options.import.text.undirected;
  const Triangles triangles = count_triangles(team, graph.file(), undirected, options.access);
  Answer answer;
  answer.record["input"] = graph.describe();
  answer.record["undirected"] = undirected;
  answer.record["closed_walks"] = triangles.closed_walks;
  answer.record["triangles"] = triangles.triangles;
  answer.text = count(triangles.triangles, "triangle", "triangles") + " (" +
                count(triangles.closed_walks, "closed walk", "closed walks") + " of length 3, " +
                (undirected ? "six an undirected" : "three a directed") + " triangle)\n";
  return answer;
}

Answer run_between(Team& team, const Options& options) {
  Graph graph(team, options);
  const Header& input = graph.file().header();
  if (input.kind != Kind::kWalks && options.exponent != 1) {
    refuse(options.graph + " holds lengths, which have no powers");
  }
  const std::uint64_t walks =
      walks_between(team, graph.file(), options.exponent, row_of(*options.from, input),
                    row_of(*options.to, input), options.access);
  Answer answer;
  answer.record["input"] = graph.describe();
  if (input.kind == Kind::kLengths) {
    tell_length(input, walks, options, answer);
    return answer;
  }
  // What was summed of cells that are cut may be more, whatever it came to.
  const bool cut = input.saturated && (options.exponent > 1 || walks == largest(input.cell));
  const std::string ends = name_ends(options, answer);
  answer.record["length"] = input.power * options.exponent;
  answer.record["walks"] = walks;
  answer.record["at_least"] = cut;
  answer.text = (cut ? "at least " : "") + count(walks, "walk", "walks") + " of length " +
                std::to_string(input.power * options.exponent) + " " + ends + "\n";
  return answer;
}

Answer run_verify(Team& team, const Options& options) {
  Graph graph(team, options);
  MatrixFile result = MatrixFile::open(team, options.result);
  Answer answer;
  answer.record["input"] = graph.describe();
  answer.record["result"] = describe_matrix(options.result, result.header());
  verify_result(team, graph, result, options, answer);
  return answer;
}

Answer run_bench(Team& team, const Options& options) {
  Answer answer;
  team.guard(Phase::compute, [&] {
    if (team.leads()) answer.record = bench(options.bench_size, options.bench_repeats);
  });
  team.agree();
  return answer;
}

}  // namespace

Answer run(Team& team, const Options& options) {
  // Beside the output lie, meanwhile, files of these names, which take the place of any other.
  for (const char* const beside : {"", ".partial", ".scratch0", ".scratch1", ".import", ".lock"}) {
    std::error_code none_of_that_name;
    const std::string written = options.output + beside;
    if (options.output.empty() || (options.discard && written == options.output) ||
        !std::filesystem::equivalent(options.graph, written, none_of_that_name)) {
      continue;
    }
    refuse("the output " + written +
           " is the graph itself, which would be lost; choose another name");
  }
  std::optional<OutputLock> lock;
  team.guard(Phase::open, [&] {
    if (!team.leads() || options.output.empty()) return;
    std::error_code absent;
    const auto there = std::filesystem::status(options.output, absent);
    if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
      throw std::runtime_error("the output " + options.output + " is no regular file, and stays");
    }
    lock.emplace(options.output);
  });
  team.agree();
  switch (options.command) {
    case Command::generate:
      return run_generate(team, options);
    case Command::convert:
      return run_convert(team, options);
    case Command::info:
      return run_info(team, options);
    case Command::power:
      return run_power(team, options);
    case Command::paths:
      return run_paths(team, options);
    case Command::triangles:
      return run_triangles(team, options);
    case Command::between:
      return run_between(team, options);
    case Command::verify:
      return run_verify(team, options);
    case Command::bench:
      return run_bench(team, options);
  }
  throw std::logic_error("unknown command");
}

}  // namespace walks
