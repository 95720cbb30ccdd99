#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "costs.h"

using namespace tare::probe;

namespace {

// Measures the cost that the words name, or says what is wrong with them. Throws what kept it from
// being measured.
int run(int argc, char** argv) {
  CLI::App app(
      "Measures what one elementary operation costs here, in nanoseconds.\n"
      "Each cost prints one JSON line with the mean of each batch, and no other statistics.",
      "probe");
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done; 1 it could not be measured here; 2 the command line is wrong.");
  const Command costs(&app);
  add_clock(costs);
  add_timer(costs);
  add_system_call(costs);
  add_context_switch(costs);
  add_wakeup(costs);
  add_page_fault(costs);
  add_memory_copy(costs);
  add_cold_code(costs);
  add_request_code(costs);
  add_computation(costs);
  add_udp_send(costs);
  add_udp_receive(costs);
  add_block(costs);
  add_udp_sink(costs);
  add_code_echo(costs);
  add_tap_echo(costs);
  add_relay(costs);
  add_meet(costs);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> words = app.remaining();
    const bool nameless = app.get_subcommands().empty() && !words.empty();
    std::cerr
        << "probe: " << (nameless ? "there is no cost '" + words.front() + "'" : error.what())
        << "\nRun probe --help for the costs, and probe COST --help for the options of one.\n";
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "probe: " << error.what() << "\n";
    return 1;
  }
}
