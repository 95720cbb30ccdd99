// The words of a command.
#pragma once

#include <string>
#include <vector>

namespace tare::probe {

using Words = std::vector<std::string>;

/// As execvp takes them; good as long as the words are.
inline std::vector<char*> pointers_to(const Words& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace tare::probe
