#include "become.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace tare::probe {
namespace {

constexpr std::string_view kGiven = "TARE_GIVEN_";  // as src/tare/command.py has it

void take_given() {
  Words given;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string_view(*variable).starts_with(kGiven)) given.emplace_back(*variable);
  }
  for (const std::string& variable : given) {
    const std::size_t end = variable.find('=');
    unsetenv(variable.substr(0, end).c_str());
    const std::string name = variable.substr(kGiven.size(), end - kGiven.size());
    setenv(name.c_str(), variable.c_str() + end + 1, 1);
  }
}

}  // namespace

void become(const Words& command) {
  const char* path = getenv("PATH");
  const std::string usual = path == nullptr ? "" : path;
  take_given();
  std::vector<char*> argv = pointers_to(command);
  execvp(argv[0], argv.data());
  const int error = errno;
  if (command[0].find('/') == std::string::npos) {
    std::vector<char*> variables;
    for (char** variable = environ; *variable != nullptr; ++variable)
      variables.push_back(*variable);
    variables.push_back(nullptr);
    setenv("PATH", usual.c_str(), 1);  // by which execvpe looks, and not the program
    execvpe(argv[0], argv.data(), variables.data());
  }
  throw std::runtime_error(command[0] + ": " + strerror(error));
}

}  // namespace tare::probe
