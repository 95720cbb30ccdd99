#include <exception>
#include <iostream>
#include <variant>

#include "ask.h"
#include "command_line.h"
#include "serve.h"
#include "transport.h"

using namespace tare::echo;

int main(int argc, char** argv) {
  const Traits& traits = transport_traits();
  try {
    const Options options = parse_command_line(traits, argc, argv);
    if (const auto* asked = std::get_if<ServeOptions>(&options)) return serve(*asked);
    return ask(std::get<AskOptions>(options));
  } catch (const HelpRequested& help) {
    std::cout << help.what();
    return 0;
  } catch (const UsageError& error) {
    std::cerr << "echo-" << traits.name << ": " << error.what() << "\nRun echo-" << traits.name
              << " ask --help or serve --help for the options.\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "echo-" << traits.name << ": " << error.what() << "\n";
    return 1;
  }
}
