#include "cli.h"

#include <CLI/CLI.hpp>
#include <map>
#include <sstream>

namespace walks {
namespace {

constexpr const char* kIntroduction =
    R"(walks: powers of a graph's adjacency matrix, out of files, by many processes.

Cell (i, j) of the p-th power is the number of walks of length p from i to j. From the powers come
shortest walk lengths and triangles. Matrices may be larger than memory; products are exact.

  walks generate g.wm --vertices 4000 --probability 0.02
  mpirun -n 4 walks power g.wm --power 3 --cell 2 -o g3.wm
  walks between g3.wm --from 4 --to 3
  mpirun -n 4 walks paths g.wm -o lengths.wm
  walks triangles friends.txt --undirected

GRAPH is a walks matrix, a Matrix Market file, or an edge list (two vertices a line).)";

const std::map<std::string, Pattern> kPatterns = {{"block", Pattern::block},
                                                  {"views", Pattern::views},
                                                  {"collective", Pattern::collective},
                                                  {"rows", Pattern::rows},
                                                  {"shift", Pattern::shift}};
const std::map<std::string, Handover> kHandovers = {{"sync", Handover::sync},
                                                    {"reopen", Handover::reopen}};
const std::map<std::string, Schedule> kSchedules = {{"steps", Schedule::steps},
                                                    {"squaring", Schedule::squaring}};
const std::map<std::string, Duplicates> kDuplicates = {
    {"refuse", Duplicates::refuse}, {"sum", Duplicates::sum}, {"one", Duplicates::one}};

// Groups of options that say what a text means: anything else tells that itself.
constexpr const char* kOfTexts = "Options of a text";
constexpr const char* kOfLists = "Options of an edge list";

template <typename Value>
void choice(CLI::App* app, const std::string& flag, Value& value,
            const std::map<std::string, Value>& names, const std::string& help) {
  std::string all;
  for (const auto& [name, unused] : names) all += (all.empty() ? "" : ", ") + name;
  app->add_option_function<std::string>(
         flag, [&value, &names](const std::string& name) { value = names.at(name); }, help)
      ->check(CLI::Validator(
          [&names, all](const std::string& name) {
            return names.contains(name) ? std::string() : name + " is none of: " + all;
          },
          "", "choice"));
}

std::string refuse_nameless(const std::string& name) { return name.empty() ? "has no name" : ""; }

void add_output(CLI::App* app, Options& options, bool required) {
  auto* const option = app->add_option("-o,--output", options.output, "File to write");
  option->check(refuse_nameless);
  if (required) option->required();
}

void add_shape(CLI::App* app, Options& options, const std::string& like) {
  app->add_option_function<std::uint32_t>(
         "--cell", [&options](std::uint32_t cell) { options.cell = cell; },
         "Bytes a cell of what is written: 1, 2, 4 or 8 (default: " + like + ")")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  app->add_option_function<std::uint64_t>(
         "--tile", [&options](std::uint64_t tile) { options.tile = tile; },
         "Side of the file's tiles, each contiguous; 0: row-major (default: " + like + ")")
      ->check(CLI::Range(std::uint64_t{0}, kMostVertices));
}

void add_graph(CLI::App* app, Options& options) {
  app->add_option("GRAPH", options.graph, "Walks matrix, Matrix Market file, or edge list")
      ->required();
}

void add_text(CLI::App* app, Options& options) {
  auto& import = options.import;
  app->option_defaults()->group(kOfLists);
  app->add_flag("--undirected", import.text.undirected,
                "Each line of an edge list stands for both directions");
  app->add_option("--first-vertex", import.text.first_vertex,
                  "Number of an edge list's first vertex: 0 or 1 (default: 1)")
      ->check(CLI::IsMember({0, 1}));
  app->add_option("--text-vertices", import.vertices,
                  "Vertices of an edge list (default: the largest one in it)")
      ->check(CLI::Range(std::int64_t{1}, static_cast<std::int64_t>(kMostVertices)));
  app->option_defaults()->group(kOfTexts);
  app->add_flag("--ignore-weights", import.text.ignore_weights, "Every entry of a text counts 1");
  app->add_flag("--no-loops", import.no_loops, "Leave out edges from a vertex to itself");
  choice(app, "--duplicates", import.duplicates, kDuplicates,
         "An edge that a text has twice: refuse (default), sum, or count as one");
  app->option_defaults()->group("Options");
}

void add_access(CLI::App* app, Options& options) {
  choice(app, "--pattern", options.access.pattern, kPatterns,
         "How blocks are read and written (the file's bytes are the same):\n"
         "views (default): file views, independent; collective: file views, collective;\n"
         "block: one call a contiguous stretch (use --tile); rows: one call a row;\n"
         "shift: read once by views, then passed between ranks");
  choice(app, "--handover", options.access.handover, kHandovers,
         "How a power just written becomes readable by other ranks:\n"
         "sync (default): MPI_File_sync, the file stays open; reopen: close and open");
  app->add_option("--memory", options.access.memory,
                  "Working set of a rank, such as 512M or 4G (default: 1G)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::int64_t{4096}, std::int64_t{1} << 50));
}

void add_verify(CLI::App* app, Options& options) {
  app->add_flag("--verify", options.verify, "Then compare the result with an exact reference");
  app->add_option_function<std::uint64_t>(
      "--verify-rows",
      [&options](std::uint64_t rows) {
        options.verify_rows = rows;
        options.verify = true;
      },
      "The same, but compare only so many rows, spread over the matrix (default: all)");
}

void add_ends(CLI::App* app, Options& options, bool required) {
  for (const auto& [flag, help, value] :
       {std::tuple{"--from", "First vertex of the walk, by the number that the input gives it",
                   &options.from},
        std::tuple{"--to", "Last vertex of the walk", &options.to}}) {
    auto* const option = app->add_option_function<std::uint64_t>(
        flag, [value = value](std::uint64_t vertex) { *value = vertex; }, help);
    if (required) option->required();
  }
}

void add_generate(CLI::App* app, Options& options) {
  app->add_option("OUTPUT", options.output, "File to write")->required()->check(refuse_nameless);
  app->add_option("--vertices", options.vertices, "Vertices")
      ->required()
      ->check(CLI::Range(std::uint64_t{1}, kMostVertices));
  app->add_option("--probability", options.probability, "Of each edge (default: 0.02)")
      ->check(CLI::Range(0.0, 1.0));
  app->add_option("--seed", options.seed, "The same seed gives the same graph (default: 1)");
  app->add_flag("--undirected", options.import.text.undirected, "Edges go both ways");
  app->add_flag("--loops", options.loops, "Edges from a vertex to itself too");
  add_shape(app, options, "1, row-major");
  add_access(app, options);
}

void add_power(CLI::App* app, Options& options) {
  add_graph(app, options);
  app->add_option("-p,--power", options.exponent, "Which power (default: 2)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32));
  add_output(app, options, true);
  app->add_flag("--discard", options.discard,
                "Open the output to be deleted on close, as when only time is asked");
  app->add_flag("--saturate", options.import.saturate,
                "A cell that does not fit keeps the largest value (default: an error)");
  choice(app, "--schedule", options.schedule, kSchedules,
         "steps (default): A2, A3, A4, ...; squaring: fewer products");
  add_shape(app, options, "as the input");
  add_verify(app, options);
  add_text(app, options);
  add_access(app, options);
}

CLI::App* add_command(CLI::App& app, Options& options, Command command, const std::string& name,
                      const std::string& help) {
  CLI::App* const sub = app.add_subcommand(name, help);
  sub->callback([&options, command] { options.command = command; });
  sub->add_flag("--json", options.json, "Print one JSON record instead of text");
  sub->add_flag("--quiet", options.quiet, "No progress lines");
  sub->add_option("--threads", options.threads,
                  "Threads a rank computes with (default: the node's cores / its ranks)")
      ->check(CLI::Range(1, 4096));
  return sub;
}

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  const auto command = [&](Command which, const char* name, const char* help) {
    return add_command(app, options, which, name, help);
  };
  add_generate(command(Command::generate, "generate", "Make a random graph"), options);

  CLI::App* sub = command(Command::convert, "convert",
                          "Text into a matrix; a matrix into other cells, tiles, or text");
  add_graph(sub, options);
  add_output(sub, options, true);
  sub->add_flag("--to-market", options.to_market, "Write Matrix Market text");
  sub->add_flag("--saturate", options.import.saturate,
                "Cut cells that do not fit (default: an error)");
  add_shape(sub, options, "as the input; of a text: 1, row-major");
  add_text(sub, options);
  sub->get_option("--no-loops")->group("Options");  // of a matrix too
  add_access(sub, options);

  sub = command(Command::info, "info", "Say what a walks matrix file holds");
  add_graph(sub, options);

  add_power(command(Command::power, "power", "Raise the adjacency matrix to a power"), options);

  sub = command(Command::paths, "paths", "Shortest walk lengths between all pairs of vertices");
  add_graph(sub, options);
  add_output(sub, options, true);
  sub->add_option("--longest", options.longest, "Look no further (default: until all are found)");
  add_ends(sub, options, false);
  add_shape(sub, options, "2 bytes, as the input");
  add_verify(sub, options);
  add_text(sub, options);
  add_access(sub, options);

  sub = command(Command::triangles, "triangles",
                "Count triangles: trace(A3) / 3, or / 6 with --undirected");
  add_graph(sub, options);
  add_text(sub, options);
  sub->get_option("--undirected")->group("Options");  // of any graph that is symmetric
  add_access(sub, options);

  sub = command(Command::between, "between", "Count the walks between two vertices");
  add_graph(sub, options);
  sub->add_option("-p,--power", options.exponent,
                  "Length of the walks, times the power that the file already holds (default: 1)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32));
  add_ends(sub, options, true);
  add_text(sub, options);
  add_access(sub, options);

  sub = command(Command::verify, "verify", "Compare a power or lengths with an exact reference");
  add_graph(sub, options);
  sub->add_option("RESULT", options.result, "Matrix that power or paths wrote")->required();
  sub->add_option("--rows,--verify-rows", options.verify_rows,
                  "Compare only so many rows, spread over the matrix (default: all)");
  add_text(sub, options);
  add_access(sub, options);

  sub = command(Command::bench, "bench",
                "Time exact products against raw oneDNN, interleaved; prints JSON");
  sub->add_option("--size", options.bench_size, "Side of the matrices (default: 2000)")
      ->check(CLI::Range(16, 30000));
  sub->add_option("--repeats", options.bench_repeats, "Repetitions (default: 10)")
      ->check(CLI::Range(1, 10000));
}

}  // namespace

Parsed parse(int argc, char** argv) {
  Options options;
  CLI::App app(kIntroduction, "walks");
  app.set_version_flag("--version", WALKS_VERSION);
  declare(app, options);
  // between reads one cell of the file unless told a power.
  if (argc > 1 && std::string(argv[1]) == "between") options.exponent = 1;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    if (end.get_exit_code() == 0) {
      std::ostringstream out;
      app.exit(end, out, out);
      return {std::nullopt, out.str(), 0};
    }
    const std::vector<std::string> unknown = app.remaining();
    const std::string what = app.get_subcommands().empty() && !unknown.empty()
                                 ? "there is no command '" + unknown.front() + "'"
                                 : end.what();
    return {std::nullopt,
            "walks: " + what + "\nRun walks --help for the commands, and walks COMMAND --help.\n",
            2};
  }
  const auto given = [](const CLI::Option* option) { return option->count() > 0; };
  for (const CLI::Option* const option : app.get_subcommands().front()->get_options(given)) {
    const bool for_lists = option->get_group() == kOfLists;
    if (for_lists) options.import.for_lists = option->get_name();
    if (for_lists || option->get_group() == kOfTexts) options.for_texts = option->get_name();
  }
  return {options, {}, 0};
}

}  // namespace walks
